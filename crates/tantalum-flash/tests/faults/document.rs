//! The document of the faults says of each kind what its code says.

use tantalum_flash::faults::{FaultKind, Plan, Survival};

const DOCUMENT: &str = include_str!("../../../../docs/understand/faults.md");

#[test]
fn the_document_says_what_the_code_says() {
    for kind in FaultKind::ALL {
        let survival = match kind.survival() {
            Survival::Survivable => "survivable",
            Survival::Reported => "reported",
            Survival::Unknowable => "unknowable",
        };
        let row = format!("| `{kind}` | {survival} | {} |", kind.doc());
        assert!(DOCUMENT.contains(&row), "docs/understand/faults.md lacks the line\n{row}");
    }
}

#[test]
fn its_plans_are_valid() {
    let plans: Vec<&str> = DOCUMENT.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!plans.is_empty());
    for plan in plans {
        let plan = Plan::parse("docs/understand/faults.md", plan).unwrap_or_else(|error| panic!("{error}"));
        assert!(!plan.is_empty());
    }
}
