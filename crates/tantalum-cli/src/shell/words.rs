//! How a line of the shell is cut into words.

/// The words of a line: separated by spaces, which belong to a word between quotation marks, single or double. A backslash is one, so that
/// keys and values are written as in other commands. Nothing after a `#` that begins a word counts.
///
/// # Errors
/// If a quotation mark is missing.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for char in line.chars() {
        match quote {
            Some(mark) if char == mark => quote = None,
            Some(_) => word.get_or_insert_default().push(char),
            None if char == '\'' || char == '"' => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            None if char.is_whitespace() => words.extend(word.take()),
            None if char == '#' && word.is_none() => break,
            None => word.get_or_insert_default().push(char),
        }
    }
    match quote {
        Some(mark) => Err(format!("the line ends before the closing {mark}")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

/// A word as it is to be written.
pub fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(|char: char| char.is_whitespace() || "'\"#".contains(char));
    match word {
        _ if is_plain => word.to_owned(),
        _ if !word.contains('\'') => format!("'{word}'"),
        // A double mark ends before each single one, which stands in double marks of its own.
        _ => word.split('\'').map(|part| format!("'{part}'")).collect::<Vec<_>>().join("\"'\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_spaces_and_kept_together_by_marks() {
        assert_eq!(words("  put t 'a b' \"it's\" x#y  # note").unwrap(), ["put", "t", "a b", "it's", "x#y"]);
        assert_eq!(words("put t {\"a\":1} '{\"a\":1}' ''").unwrap(), ["put", "t", "{a:1}", "{\"a\":1}", ""]);
        assert_eq!(words("a\\x00 \\\\").unwrap(), ["a\\x00", "\\\\"]);
        assert_eq!(words("# only a note").unwrap(), [""; 0]);
        assert!(words("put 'a").unwrap_err().contains("closing '"));
    }

    #[test]
    fn what_is_quoted_is_one_word() {
        for word in ["a", "", "a b", "it's", "\"x\"", "#1", "'", "a'\"b c"] {
            assert_eq!(words(&quoted(word)).unwrap(), [word], "{}", quoted(word));
        }
    }
}
