//! Lines from a terminal, which can be edited, with a history that outlives the shell, and completion of commands, options and tables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustyline::{CompletionType, Config, Editor, error::ReadlineError, history::FileHistory};

use super::completion::Completion;
use crate::error::{Error, Result};

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Asks for lines.
pub struct Prompt {
    editor: Editor<Completion, FileHistory>,
    /// The history's file; `None` where there is no place for it.
    history: Option<PathBuf>,
}

impl Prompt {
    /// Lines are completed as `commands` are defined.
    pub fn new(commands: clap::Command) -> Result<Self> {
        let config = Config::builder()
            .history_ignore_space(true)
            .max_history_size(HISTORY_LINES)
            .map_err(|error| failed(&error))?
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config).map_err(|error| failed(&error))?;
        editor.set_helper(Some(Completion::new(commands)));
        let history = history_file();
        if let Some(file) = &history {
            // The first time there is none.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// The next line; `None` at the end. `tables` are completed.
    pub fn ask(&mut self, prompt: &str, tables: Vec<String>) -> Result<Option<String>> {
        if let Some(helper) = self.editor.helper_mut() {
            helper.set_tables(tables);
        }
        loop {
            match self.editor.readline(prompt) {
                Ok(line) => {
                    self.editor.add_history_entry(&line).map_err(|error| failed(&error))?;
                    self.save_history();
                    return Ok(Some(line));
                }
                // Ctrl-C gives up the line.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    /// A shell without a history is a shell: what keeps it from being written is not said.
    fn save_history(&mut self) {
        let Some(file) = &self.history else { return };
        if let Some(directory) = file.parent() {
            let _ = fs::create_dir_all(directory);
        }
        let _ = self.editor.append_history(file);
    }
}

fn failed(error: &ReadlineError) -> Error {
    Error::Other(format!("cannot read from the terminal: {error}"))
}

/// Where programs keep what should outlive them and is no setting.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state")))?;
    Some(state.join("tantalum/shell_history"))
}
