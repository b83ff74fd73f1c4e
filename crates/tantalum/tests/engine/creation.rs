//! Creating a database takes place as a whole or not at all, whenever the power goes.

use std::{fs, path::Path};

use tantalum::{Builder, Db};
use tantalum_device::{
    MemoryProfile,
    files::{self, SimulatedFiles},
};
use tantalum_rt::{Outcome, Random, Simulation};

fn builder() -> Builder {
    Db::builder().log_bytes(1 << 20).buffer_pool_bytes(64 * 8192).page_size(8192).log_archive("archive/of/log")
}

/// Cut at every operation on directories, and repeated: it succeeds, and leaves the settings that it was given.
#[test]
fn a_creation_that_is_cut_at_any_operation_on_directories_can_be_repeated() {
    let settled = |seed: u64, system: &std::sync::Arc<SimulatedFiles>| {
        let path = Path::new("/database/tantalum.toml");
        Simulation::new(seed).run(|| Db::open("/database").unwrap().close().unwrap()).expect_finished();
        let text = String::from_utf8(files::read(path).unwrap()).unwrap();
        for line in ["page_size = 8192", "log_bytes = 1048576", "log_archive = \"archive/of/log\""] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!system.files().contains(&"/database/CREATING".into()));
    };
    for seed in 0..6 {
        for operations in 0.. {
            let system = SimulatedFiles::new(MemoryProfile::default());
            let attached = system.attach();
            let open = || builder().log_devices(["log-a", "/elsewhere/log-b"]).open("/database").map(drop);
            let prepared = Simulation::new(seed).run(|| files::create_directory(Path::new("/elsewhere")));
            prepared.expect_finished().unwrap();
            system.cut_after(operations);
            let outcome = Simulation::new(seed).run(move || open().unwrap());
            let is_whole = matches!(outcome, Outcome::Finished(()));
            system.power_cut(&mut Random::with_seed(seed * 1000 + operations));
            if !is_whole {
                let what = format!("seed {seed}, cut at operation {operations}");
                Simulation::new(seed).run(move || open().expect(&what)).expect_finished();
            }
            settled(seed, &system);
            drop(attached);
            if is_whole {
                assert!(operations > 30, "it takes more than {operations} operations");
                break;
            }
        }
    }
}

/// What creations of earlier versions could leave when the power went.
#[test]
fn remains_of_earlier_versions_are_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("CREATING"), "").unwrap();
    fs::write(dir.path().join("tantalum.toml"), "").unwrap();
    fs::create_dir_all(dir.path().join("archive/of/log")).unwrap();
    fs::write(dir.path().join("archive/of/log/control"), "").unwrap();
    builder().open(dir.path()).unwrap().close().unwrap();
    let stats = Db::open(dir.path()).unwrap().stats().unwrap();
    assert_eq!(stats.page_bytes, 8192);
    assert!(stats.log.archive.is_some());
}

/// A file that was there before is no remains of a creation, whatever its name.
#[test]
fn files_that_are_not_ours_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, theirs) = (dir.path().join("db"), dir.path().join("theirs"));
    fs::write(&theirs, "theirs").unwrap();
    for _ in 0..2 {
        let error = builder().log_devices([&theirs]).open(&path).map(drop).unwrap_err().to_string();
        assert!(error.contains("theirs"), "{error}");
    }
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    builder().open(&path).unwrap().close().unwrap();
}
