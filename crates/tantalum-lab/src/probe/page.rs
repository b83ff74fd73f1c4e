//! A probe as a page that needs nothing else: what follows first, then what was measured.

use tantalum_report::{
    html::{Column, Html, Page, element, figure, table},
    units::{bytes, number},
};

use super::{
    advice::Advice,
    found::{Found, Gap},
    plots::plots,
    power::Verdict,
};

/// What was found and what follows from it, as a page.
pub fn page(found: &Found, advice: &Advice) -> Page {
    let mut page = Page::new(format!("tantalum probe: {}", found.claims.name));
    page.add(element("h1").with(&found.claims.name));
    page.add(element("p").with(summary(found)));
    if let Some(power) = &advice.power_safe {
        let (class, verdict) = match power.verdict {
            Verdict::Consistent => ("chip good", "consistent"),
            Verdict::Claimed => ("chip fair", "claimed"),
            Verdict::Contradicted => ("chip poor", "contradicted"),
        };
        let chip = element("span").class(class).with(verdict);
        page.add(element("p").with("power-safe ").with(chip).with(format!(" {}.", power.why)));
    }
    if !advice.recommendations.is_empty() {
        page.add(element("h2").with("What follows"));
        let columns = [("setting", Column::Text), ("value", Column::Text), ("why", Column::Text)];
        let rows = advice.recommendations.iter();
        let rows = rows.map(|row| vec![row.setting.into(), element("b").with(&row.value).into(), (&row.why).into()]);
        page.add(table(&columns, rows));
    }
    page.add(element("h2").with("What it says of itself"));
    page.add(claims(found));
    page.add(element("h2").with("What was measured"));
    page.add(element("ul").with(statements(found).into_iter().map(|line| element("li").with(line)).collect::<Html>()));
    page.add(plots(found).iter().filter_map(figure).collect::<Html>());
    let version = env!("CARGO_PKG_VERSION");
    page.add(element("footer").with(format!("Written by tantalum {version}, probe.")));
    page
}

fn summary(found: &Found) -> String {
    format!(
        "{} of {}, {} written, in {:.0} s.",
        bytes(found.range.end - found.range.start),
        bytes(found.claims.capacity_bytes),
        bytes(found.written_bytes),
        found.seconds
    )
}

fn claims(found: &Found) -> impl Into<Html> {
    let claims = &found.claims;
    let known = |answer: Option<bool>| match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let or_none = |bytes_or_0: u32| if bytes_or_0 == 0 { "none known".to_owned() } else { bytes(bytes_or_0.into()) };
    let rows = [
        ("logical block", bytes(claims.logical_block_bytes.into())),
        ("physical block", bytes(claims.physical_block_bytes.into())),
        ("atomic writes up to", or_none(claims.atomic_write_bytes)),
        (
            "placement handles",
            if claims.placement_handles > 1 { claims.placement_handles.to_string() } else { "none known".into() },
        ),
        ("write cache", claims.write_cache.to_owned()),
        ("forced unit access", known(claims.fua).to_owned()),
        ("spins", known(claims.rotational).to_owned()),
        ("direct I/O", known(Some(claims.direct_io)).to_owned()),
    ];
    let columns = [("property", Column::Text), ("claim", Column::Text)];
    table(&columns, rows.map(|(name, value)| vec![name.into(), value.into()]))
}

/// What is no curve, a sentence each.
pub fn statements(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(steady) = &found.steady {
        let written = bytes(steady.rounds.len() as u64 * steady.round_bytes);
        lines.push(match (steady.is_reached, steady.rounds.last()) {
            (true, Some(last)) => {
                format!("A steady state was reached after {written} of random writes, at {} MB/s.", number(last / 1e6))
            }
            _ => {
                format!("A steady state was not reached in {written} of random writes: rates may fall further in use.")
            }
        });
    }
    for (what, gaps) in [("reads", found.read_gaps()), ("writes", found.write_gaps())] {
        if let Some(Gap { bytes: size, ratio }) = Gap::max(&gaps) {
            lines.push(format!("The largest gap of {what} is {} at {}.", number(ratio), bytes(size.into())));
        }
    }
    if let Some(cache) = &found.cache {
        lines.push(match (cache.knee_bytes, cache.burst.last()) {
            (Some(knee), _) => {
                format!("A burst of small writes becomes slow after {}: the write cache takes about that.", bytes(knee))
            }
            (None, Some((most, _))) => format!("A burst of {} of small writes never became slow.", bytes(*most)),
            (None, None) => "No burst was measured.".to_owned(),
        });
    }
    lines.push(match found.erase_unit.bytes {
        Some(unit) => format!("Erase unit: {}; {}.", bytes(unit), found.erase_unit.why),
        None => format!("Erase unit: {}.", found.erase_unit.why),
    });
    lines.push(match found.open_units.limit {
        Some(limit) => format!("Open units: {limit}; {}.", found.open_units.why),
        None => format!("Open units: {}.", found.open_units.why),
    });
    if let Some(streams) = found.two_streams {
        let ratio = streams.both.mean_ns / streams.one.mean_ns.max(1.0);
        lines.push(format!("Two streams of durable writes take {} times as long as one.", number(ratio)));
    }
    lines.extend(found.left_out.iter().map(|what| format!("Left out: {what}.")));
    lines
}
