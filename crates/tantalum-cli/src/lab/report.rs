//! `tantalum lab report`: what the lab found, as a page, and in the tables of documents.

use std::path::PathBuf;

use tantalum_lab::{
    report,
    runs::{self, Run},
};

use super::run::{choose, open_out, run_one, write_out};
use crate::error::{Error, Out, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// The ids of `lab list`; one that ends in * stands for all that begin so. None: all that run, or, with --from, all that
    /// the files have.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The page.
    #[arg(long, value_name = "FILE", required_unless_present = "markdown")]
    out: Option<PathBuf>,
    /// A document whose tables and pictures are written anew; may be given several times. One stands between "<!-- results ID... -->"
    /// (numbers beside published ones, and statements), "<!-- statements ID... -->", "<!-- matrix ID... UNIT... -->" (all numbers of
    /// these results in these units) or "<!-- picture FILE ID... -->" (all numbers, measured over published, in an SVG file) and
    /// "<!-- end -->"; the text around stays as it is.
    #[arg(long, value_name = "FILE")]
    markdown: Vec<PathBuf>,
    /// Results that `lab run --json` wrote; may be given several times. Of an experiment in several files the last counts.
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Decides addresses and chance in the models, for experiments that are run.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut known = Vec::new();
    for path in &arguments.from {
        // The page must not take the place of what it is made from.
        if arguments.out.iter().any(|out| is_same_file(path, out)) {
            return Err(Error::Other(format!(
                "{} is both read and written; name another file after --out",
                path.display()
            )));
        }
        let read = runs::read(path)?;
        known.retain(|known: &Run| read.iter().all(|read| read.published.id != known.published.id));
        known.extend(read);
    }
    let all = ["*".to_owned()];
    let chosen = match (&arguments.ids[..], &arguments.from[..]) {
        ([], []) => choose(&all)?,
        ([], _) => Vec::new(),
        (ids, _) => choose(ids)?,
    };
    let out = arguments.out.as_deref().map(open_out).transpose()?;
    if !arguments.ids.is_empty() {
        known.retain(|known| chosen.iter().any(|chosen| chosen.id == known.published.id));
    }
    for experiment in chosen {
        if known.iter().all(|known| known.published.id != experiment.id) {
            known.push(run_one(experiment, arguments.seed)?);
        }
    }
    for path in &arguments.markdown {
        let document = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
        let filled = report::markdown::fill(&document, &known)?;
        for (file, svg) in filled.pictures {
            let file = path.parent().map_or_else(|| PathBuf::from(&file), |directory| directory.join(&file));
            std::fs::write(&file, svg).map_err(|error| Error::file("write", &file, error))?;
        }
        std::fs::write(path, filled.text).map_err(|error| Error::file("write", path, error))?;
        Out::new().line(format_args!("tables in {}", path.display()))?;
    }
    let Some(out) = out else { return Ok(()) };
    let path = out.path().display().to_string();
    write_out(out, &report::page(&known).to_html())?;
    Out::new().line(format_args!("{} experiments in {path}", known.len()))
}

fn is_same_file(one: &std::path::Path, other: &std::path::Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
