//! How a line that is being written goes on: a command, one of its options, a value of an option, or a table.

use clap::Command;
use rustyline::{
    Context, Helper,
    completion::{Completer, Pair},
    highlight::Highlighter,
    hint::Hinter,
    validate::Validator,
};

use super::words::quoted;

/// Completes lines.
pub struct Completion {
    commands: Command,
    tables: Vec<String>,
}

impl Completion {
    /// Lines are completed as `commands` are defined.
    pub fn new(mut commands: Command) -> Self {
        commands.build();
        Self { commands, tables: Vec::new() }
    }

    pub fn set_tables(&mut self, tables: Vec<String>) {
        self.tables = tables;
    }

    /// Where the last word begins, and what it may become.
    fn of(&self, line: &str) -> (usize, Vec<String>) {
        let begin = line.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let (before, word) = line.split_at(begin);
        let before: Vec<&str> = before.split_whitespace().collect();
        let names = || self.commands.get_subcommands().map(|command| command.get_name().to_owned());
        let candidates: Vec<String> = match before[..] {
            [] => names().collect(),
            ["help"] => names().filter(|name| name != "help").collect(),
            [command, ..] => match self.commands.find_subcommand(command) {
                Some(command) => self.arguments_of(command, &before[1..], word),
                None => Vec::new(),
            },
        };
        (begin, candidates.into_iter().filter(|candidate| candidate.starts_with(word)).collect())
    }

    fn arguments_of(&self, command: &Command, before: &[&str], word: &str) -> Vec<String> {
        let long = |argument: &clap::Arg| argument.get_long().map(|long| format!("--{long}"));
        let takes_value = |argument: &&clap::Arg| argument.get_action().takes_values();
        // The value of the option before.
        let option = command
            .get_arguments()
            .filter(takes_value)
            .find(|argument| before.last().is_some_and(|last| long(argument).is_some_and(|long| long == *last)));
        if let Some(option) = option {
            return option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        }
        if word.starts_with('-') {
            return command.get_arguments().filter_map(long).collect();
        }
        let has_table = command.get_positionals().any(|argument| argument.get_id() == "table");
        if before.is_empty() && has_table {
            return self.tables.iter().map(|table| quoted(table)).collect();
        }
        Vec::new()
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    /// Behind what is complete, the next word begins.
    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (begin, candidates) = self.of(&line[..position]);
        let pair = |word: String| Pair { replacement: format!("{word} "), display: word };
        Ok((begin, candidates.into_iter().map(pair).collect()))
    }
}

impl Helper for Completion {}
impl Highlighter for Completion {}
impl Validator for Completion {}

impl Hinter for Completion {
    type Hint = String;
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn commands_options_values_and_tables_are_completed() {
        let mut completion = Completion::new(super::super::Line::command());
        completion.set_tables(vec!["accounts".into(), "all orders".into(), "items".into()]);
        let of = |line: &str| completion.of(line);
        assert_eq!(of("co"), (0, vec!["count".into(), "commit".into()]));
        assert_eq!(of("help sc"), (5, vec!["scan".into()]));
        assert_eq!(of("get a"), (4, vec!["accounts".into()]));
        assert_eq!(of("get '"), (4, vec!["'all orders'".into()]));
        assert_eq!(of("scan items --key-"), (11, vec!["--key-as".into()]));
        assert_eq!(of("scan items --key-as he"), (20, vec!["hex".into()]));
        assert_eq!(of("get items "), (10, Vec::new()), "a key is not known");
        assert_eq!(of("tables i"), (7, Vec::new()));
        assert_eq!(of("nothing a"), (8, Vec::new()));
        assert!(of("").1.contains(&"quit".to_owned()) && of("scan items --li").1 == ["--limit"]);
    }
}
