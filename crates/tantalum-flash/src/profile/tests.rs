//! The profiles parse, and mistakes in one are named with file, line and key.

use super::*;

#[test]
fn every_profile_parses_and_makes_a_device() {
    for name in Profile::names() {
        let profile = Profile::named(name).unwrap_or_else(|error| panic!("{error}"));
        let model = profile.clone().with_capacity(32 << 20).build().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.describe().capacity_bytes, 32 << 20, "{name}");
        let text = Profile::text(name).unwrap();
        let is_parameter = |line: &&str| line.contains(" = ") && !line.starts_with('#');
        let needs_no_source = |line: &&str| line.starts_with("description") || line.starts_with("fitted");
        for parameter in text.lines().filter(is_parameter).filter(|line| !needs_no_source(line)) {
            assert!(parameter.contains(" # "), "{name}: no source is given for {parameter}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    let good = Profile::text("durassd").unwrap();
    let unknown = good.replace("read_ns", "raed_ns");
    let message = Profile::parse("mine.toml", &unknown).unwrap_err().to_string();
    let line = 1 + good.lines().position(|line| line.starts_with("read_ns")).unwrap();
    assert!(message.contains("mine.toml") && message.contains("raed_ns"), "{message}");
    assert!(message.contains(&format!("line {line}")), "{message}");

    let impossible = good.replace("page_bytes = 8192", "page_bytes = 8000");
    let error = Profile::parse("mine.toml", &impossible).unwrap().build().unwrap_err();
    assert!(matches!(error, Error::Impossible { key: "geometry.page_bytes", .. }), "{error}");
    let message = Profile::named("no-such-drive").unwrap_err().to_string();
    assert!(message.contains("durassd"), "{message}");
}
