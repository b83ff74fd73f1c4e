//! Cloud volumes keep their promises when the machine loses its power.

mod power;

use tantalum_flash::Profile;

#[test]
fn whatever_has_ended_is_there() {
    for seed in 0..100 {
        let profile = Profile::named("cloud-volume").unwrap().with_capacity(1 << 30);
        let mut volume = profile.build().unwrap();
        power::search(seed, &mut *volume, power::Search { operations: 60, cuts: 6, sectors: 2000, largest: 64 });
    }
}
