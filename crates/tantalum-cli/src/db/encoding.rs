//! How keys and values are written on command lines and in files: as text, hexadecimal digits, integers, or JSON.

use clap::{Args, ValueEnum};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// How bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// UTF-8 as it is; other bytes and control characters are \xNN, a backslash is \\
    #[default]
    Text,
    /// Hexadecimal digits, two for each byte
    Hex,
    /// Four bytes, the highest first: they are ordered as the numbers are
    U32,
    /// Eight bytes, the highest first
    U64,
    /// As u32, with the sign bit inverted, so that negative numbers come first
    I32,
    /// As u64, with the sign bit inverted
    I64,
    /// Eight bytes, the lowest first
    U64Le,
    /// Eight bytes, the lowest first: what `increment` writes
    I64Le,
    /// JSON, kept without spaces between its parts
    Json,
}

/// How the keys and values of a command are written.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Encodings {
    /// How keys are written: text (the default), hex, u32, u64, i32, i64, u64-le, i64-le or json; --help explains them.
    #[arg(
        long,
        value_name = "ENCODING",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub key_as: Encoding,
    /// How values are written: text (the default), hex, u32, u64, i32, i64, u64-le, i64-le or json; --help explains them.
    #[arg(
        long,
        value_name = "ENCODING",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub value_as: Encoding,
}

impl Encodings {
    /// A key from the command line.
    pub fn key(&self, text: &str) -> Result<Vec<u8>> {
        self.key_as.bytes_of(text).map_err(|what| Error::Usage(format!("the key {text:?} {what}")))
    }

    /// A value from the command line.
    pub fn value(&self, text: &str) -> Result<Vec<u8>> {
        self.value_as.bytes_of(text).map_err(|what| Error::Usage(format!("the value {text:?} {what}")))
    }

    /// A key, to be printed before a value: without spaces where it is text.
    pub fn show_key(&self, key: &[u8]) -> Result<String> {
        let shown = self.key_as.show(key).map_err(|what| not_so("key", key, &what))?;
        Ok(if self.key_as == Encoding::Text { shown.replace(' ', "\\x20") } else { shown })
    }

    /// A value, to be printed on a line of its own or behind its key.
    pub fn show_value(&self, key: &[u8], value: &[u8]) -> Result<String> {
        self.value_as.show(value).map_err(|what| not_so("value of the key", key, &what))
    }

    /// A key as JSON.
    pub fn key_json(&self, key: &[u8]) -> Result<Box<RawValue>> {
        self.key_as.json_of(key).map_err(|what| not_so("key", key, &what))
    }

    /// A value as JSON.
    pub fn value_json(&self, key: &[u8], value: &[u8]) -> Result<Box<RawValue>> {
        self.value_as.json_of(value).map_err(|what| not_so("value of the key", key, &what))
    }
}

fn not_so(place: &str, key: &[u8], what: &str) -> Error {
    Error::Other(format!("the {place} \"{}\" {what}; give another encoding, text suits any bytes", text_of(key)))
}

/// Applies a macro to each integer encoding: its type, and what turns its big-endian bytes into those that are stored.
macro_rules! integers {
    ($encoding:expr, $use:ident, $otherwise:expr) => {
        match $encoding {
            Encoding::U32 => $use!(u32, to_be_bytes, from_be_bytes, 0),
            Encoding::U64 => $use!(u64, to_be_bytes, from_be_bytes, 0),
            Encoding::I32 => $use!(i32, to_be_bytes, from_be_bytes, i32::MIN),
            Encoding::I64 => $use!(i64, to_be_bytes, from_be_bytes, i64::MIN),
            Encoding::U64Le => $use!(u64, to_le_bytes, from_le_bytes, 0),
            Encoding::I64Le => $use!(i64, to_le_bytes, from_le_bytes, 0),
            Encoding::Text | Encoding::Hex | Encoding::Json => $otherwise,
        }
    };
}

/// For `integers!`: that it is one.
macro_rules! yes {
    ($($integer:tt)*) => {
        true
    };
}

impl Encoding {
    /// The bytes that `text` stands for, or what is wrong with it.
    pub fn bytes_of(self, text: &str) -> Result<Vec<u8>, String> {
        macro_rules! parse {
            ($number:ty, $to:ident, $from:ident, $sign:expr) => {
                match text.trim().parse::<$number>() {
                    Ok(number) => Ok((number ^ $sign).$to().to_vec()),
                    Err(_) => Err(format!("is no integer from {} to {}", <$number>::MIN, <$number>::MAX)),
                }
            };
        }
        match self {
            Self::Text => bytes_of_text(text),
            Self::Hex => bytes_of_hex(text),
            Self::Json => compact_json(text).map(String::into_bytes),
            _ => integers!(self, parse, unreachable!("not an integer")),
        }
    }

    /// What stands for these bytes, on one line; or why nothing does.
    pub fn show(self, bytes: &[u8]) -> Result<String, String> {
        macro_rules! number {
            ($number:ty, $to:ident, $from:ident, $sign:expr) => {
                match bytes.try_into() {
                    Ok(bytes) => Ok((<$number>::$from(bytes) ^ $sign).to_string()),
                    Err(_) => {
                        let expected = size_of::<$number>();
                        Err(format!("has {} bytes, and an integer of this encoding has {expected}", bytes.len()))
                    }
                }
            };
        }
        match self {
            Self::Text => Ok(text_of(bytes)),
            Self::Hex => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            Self::Json => {
                let text = std::str::from_utf8(bytes).map_err(|_| "is not JSON: it is not UTF-8".to_owned())?;
                compact_json(text)
            }
            _ => integers!(self, number, unreachable!("not an integer")),
        }
    }

    /// These bytes as JSON: a number, what they say themselves, or a string; or why not.
    pub fn json_of(self, bytes: &[u8]) -> Result<Box<RawValue>, String> {
        let shown = self.show(bytes)?;
        let json = match self {
            Self::Text | Self::Hex => serde_json::to_string(&shown).map_err(|error| error.to_string())?,
            _ => shown,
        };
        RawValue::from_string(json).map_err(|error| error.to_string())
    }

    /// The bytes that JSON stands for: a string, or for integers also a number, or for JSON anything.
    pub fn bytes_of_json(self, json: &RawValue) -> Result<Vec<u8>, String> {
        if self == Self::Json {
            return self.bytes_of(json.get());
        }
        let is_integer = integers!(self, yes, false);
        match serde_json::from_str::<String>(json.get()) {
            Ok(text) => self.bytes_of(&text),
            Err(_) if is_integer => self.bytes_of(json.get()),
            Err(_) => Err("is no string; JSON itself is kept with --value-as json, or --key-as json".into()),
        }
    }
}

/// Bytes as text: UTF-8 as it is, but for characters that do not show, which are `\xNN` as other bytes are; a backslash is `\\`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape =
        |text: &mut String, bytes: &[u8]| bytes.iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' | '\'' => text.push(char),
                // What Rust escapes does not show: controls, marks that change the direction, characters of no script.
                _ if char.escape_debug().len() > 1 => escape(&mut text, char.encode_utf8(&mut [0; 4]).as_bytes()),
                _ => text.push(char),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn bytes_of_text(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                bytes.push(b'\\');
                tail
            }
            (b'\\', [b'x', high, low, tail @ ..]) => {
                bytes.push(hex_byte(*high, *low).ok_or("has \\x without two hexadecimal digits behind it")?);
                tail
            }
            (b'\\', _) => return Err("has a backslash that begins neither \\xNN, a byte, nor \\\\, a backslash".into()),
            (_, tail) => {
                bytes.push(*first);
                tail
            }
        };
    }
    Ok(bytes)
}

fn bytes_of_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.trim().as_bytes();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => hex_byte(*high, *low),
        _ => None,
    });
    pairs.collect::<Option<_>>().ok_or_else(|| "is not hexadecimal: two digits stand for each byte".to_owned())
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// JSON without spaces between its parts. Numbers keep all their digits.
fn compact_json(text: &str) -> Result<String, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| format!("is not JSON: {error}"))?;
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_kept = |char: &char| {
        if is_in_string {
            (is_in_string, is_escaped) = (*char != '"' || is_escaped, *char == '\\' && !is_escaped);
            return true;
        }
        is_in_string = *char == '"';
        !char.is_ascii_whitespace()
    };
    Ok(text.chars().filter(is_kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_written_and_read_back() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let texts = [every_byte.as_slice(), b"", "ä b\\\u{202e}\u{85}😀\n".as_bytes(), b"\xc3"];
        for bytes in texts {
            for encoding in [Encoding::Text, Encoding::Hex] {
                let shown = encoding.show(bytes).unwrap();
                assert!(!shown.contains(char::is_control), "{shown}");
                assert_eq!(encoding.bytes_of(&shown).unwrap(), bytes);
                assert_eq!(encoding.bytes_of_json(&encoding.json_of(bytes).unwrap()).unwrap(), bytes);
            }
        }
        assert_eq!(text_of("ä b\\\u{202e}\n".as_bytes()), "ä b\\\\\\xe2\\x80\\xae\\x0a");
    }

    #[test]
    fn integers_are_ordered_as_their_bytes_are() {
        for (encoding, ascending) in [
            (Encoding::U32, ["0", "1", "256", "4294967295"]),
            (Encoding::U64, ["0", "255", "256", "18446744073709551615"]),
            (Encoding::I32, ["-2147483648", "-1", "0", "2147483647"]),
            (Encoding::I64, ["-9223372036854775808", "-256", "3", "9223372036854775807"]),
        ] {
            let bytes = ascending.map(|number| encoding.bytes_of(number).unwrap());
            assert!(bytes.is_sorted(), "{encoding:?}");
            assert_eq!(bytes.each_ref().map(|bytes| encoding.show(bytes).unwrap()), ascending);
            let json = encoding.json_of(&bytes[3]).unwrap();
            assert_eq!((json.get(), encoding.bytes_of_json(&json).unwrap()), (ascending[3], bytes[3].clone()));
        }
        assert_eq!(Encoding::U64.bytes_of("1").unwrap(), 1u64.to_be_bytes());
        assert_eq!(Encoding::I64Le.bytes_of("-2").unwrap(), (-2i64).to_le_bytes());
        assert_eq!(Encoding::U64Le.show(&7u64.to_le_bytes()).unwrap(), "7");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let refused = |encoding: Encoding, text: &str| encoding.bytes_of(text).unwrap_err();
        assert!(refused(Encoding::Text, "a\\x0").contains("\\x"));
        assert!(refused(Encoding::Text, "\\n").contains("backslash"));
        assert!(refused(Encoding::Hex, "abc").contains("two digits"));
        assert!(refused(Encoding::Hex, "zz").contains("hexadecimal"));
        assert!(refused(Encoding::I32, "2147483648").contains("from -2147483648 to 2147483647"));
        assert!(refused(Encoding::Json, "{\"a\":}").contains("not JSON"));
        assert!(Encoding::U64.show(b"abc").unwrap_err().contains("has 3 bytes"));
        assert!(Encoding::Json.show(b"\xff").unwrap_err().contains("UTF-8"));
        let number = RawValue::from_string("5".into()).unwrap();
        assert!(Encoding::Text.bytes_of_json(&number).unwrap_err().contains("no string"));
    }

    #[test]
    fn json_keeps_its_digits_and_loses_its_spaces() {
        let json =
            Encoding::Json.bytes_of(" { \"a b\\\\\" : [ 1.50, 12345678901234567890123 , \"x\\\" y\" ] }\n").unwrap();
        assert_eq!(json, br#"{"a b\\":[1.50,12345678901234567890123,"x\" y"]}"#);
    }
}
