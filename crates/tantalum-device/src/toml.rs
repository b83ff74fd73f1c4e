//! Files in TOML that a program writes and an operator may edit: settings, the places of log devices, measurements.
//!
//! A [`Table`] is read from text, its fields are taken out one by one, and what is left over is an unknown field. What is wrong is
//! said with its line ([`Problem`]). Nothing here needs serde, so the core of the engine builds without procedural macros.
//!
//! ```
//! use tantalum_device::toml::Table;
//! let mut table = Table::parse(b"pages = 7\nname = \"log\"\n").expect("well-formed");
//! let (pages, name): (u64, String) = (table.require("pages").expect("there"), table.require("name").expect("there"));
//! assert_eq!((pages, name.as_str(), table.finish()), (7, "log", Ok(())));
//! let problem = Table::parse(b"pages = 7\npages = 8\n").expect_err("twice");
//! assert_eq!(problem.line, 2);
//! ```

use std::fmt::{self, Write};
use std::path::PathBuf;

use toml_span::value::ValueInner;

/// What is wrong with a text, and where.
///
/// ```
/// let problem = tantalum_device::toml::Table::parse(b"\npages =\n").expect_err("no value");
/// assert_eq!(problem.line, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// A value as it stands in a file.
///
/// ```
/// use tantalum_device::toml::{Field, Value};
/// assert_eq!(u8::from_value(&Value::Integer(7)), Ok(7));
/// assert!(u8::from_value(&Value::Integer(256)).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// A number with a point.
    Float(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A text.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// A table.
    Table(Table),
}

/// A type of values in a file.
///
/// ```
/// use tantalum_device::toml::Field;
/// let paths = vec![std::path::PathBuf::from("a"), "b".into()];
/// assert_eq!(paths.to_value().map(|value| value.to_string()), Ok("[\"a\", \"b\"]".to_owned()));
/// ```
pub trait Field: Sized {
    /// Reads a value.
    ///
    /// # Errors
    /// What was expected instead.
    fn from_value(value: &Value) -> Result<Self, String>;

    /// The value that stands in a file.
    ///
    /// # Errors
    /// Why none can: a path that is not UTF-8, or a number beyond those of TOML.
    fn to_value(&self) -> Result<Value, String>;
}

/// Shows a type whose values have names, a constant `ALL` and a method `name`, by these names, parses them, and makes the type a
/// [`Field`].
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Fruit { Apple }
///
/// impl Fruit {
///     const ALL: [Self; 1] = [Self::Apple];
///     fn name(self) -> &'static str { "apple" }
/// }
///
/// tantalum_device::named_field!(Fruit);
/// use tantalum_device::toml::{Field, Value};
/// assert_eq!(Fruit::from_value(&Value::Text("apple".into())), Ok(Fruit::Apple));
/// assert_eq!("apple".parse(), Ok(Fruit::Apple));
/// assert_eq!("pear".parse::<Fruit>(), Err("\"pear\" was given; it can be one of apple".into()));
/// assert_eq!(Fruit::Apple.to_string(), "apple");
/// ```
#[macro_export]
macro_rules! named_field {
    ($type:ty) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                <Self as $crate::toml::Field>::from_value(&$crate::toml::Value::Text(name.to_owned()))
            }
        }

        impl $crate::toml::Field for $type {
            fn from_value(value: &$crate::toml::Value) -> Result<Self, String> {
                let found = Self::ALL.into_iter().find(|one| value.as_text() == Some(one.name()));
                let names = || Self::ALL.map(Self::name).join(", ");
                found.ok_or_else(|| format!("{value} was given; it can be one of {}", names()))
            }

            fn to_value(&self) -> Result<$crate::toml::Value, String> {
                Ok($crate::toml::Value::Text(self.name().to_owned()))
            }
        }
    };
}

/// The fields of a file, or of a part of it, in their order.
///
/// ```
/// use tantalum_device::toml::Table;
/// let mut table = Table::default();
/// table.put("name", &"a \"log\"".to_owned()).expect("UTF-8");
/// assert_eq!(table.to_string(), "name = \"a \\\"log\\\"\"\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    line: usize,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    line: usize,
    value: Value,
}

impl Table {
    /// Reads a whole file.
    ///
    /// # Errors
    /// It is not UTF-8, or no TOML; dates and times are none that anything here has.
    pub fn parse(text: &[u8]) -> Result<Self, Problem> {
        let line_at = |byte: usize| 1 + text.iter().take(byte).filter(|&&byte| byte == b'\n').count();
        let problem = |byte, what| Problem { line: line_at(byte), what };
        let text = str::from_utf8(text).map_err(|error| problem(error.valid_up_to(), "this is not UTF-8".into()))?;
        let parsed = toml_span::parse(text).map_err(|error| problem(error.span.start, error.to_string()))?;
        match Value::from_parsed(parsed, &line_at) {
            Value::Table(table) => Ok(table),
            _ => Err(problem(0, "this is no table".into())),
        }
    }

    /// The line where it begins, from 1; 0 for one that was not read.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Takes a field out, if it is there.
    ///
    /// # Errors
    /// Its value is not of the type.
    pub fn take<T: Field>(&mut self, key: &str) -> Result<Option<T>, Problem> {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else { return Ok(None) };
        let Entry { line, value, .. } = self.entries.remove(at);
        T::from_value(&value).map(Some).map_err(|what| Problem { line, what: format!("{key}: {what}") })
    }

    /// Takes a field out that must be there.
    ///
    /// # Errors
    /// It is not there, or its value is not of the type.
    pub fn require<T: Field>(&mut self, key: &str) -> Result<T, Problem> {
        let line = self.line.max(1);
        self.take(key)?.ok_or_else(|| Problem { line, what: format!("missing field `{key}`") })
    }

    /// Takes out an array of tables; none are an empty one.
    ///
    /// # Errors
    /// There is something else.
    pub fn take_tables(&mut self, key: &str) -> Result<Vec<Table>, Problem> {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else { return Ok(Vec::new()) };
        let Entry { line, value, .. } = self.entries.remove(at);
        let problem = || Problem { line, what: format!("{key}: tables are expected, [[{key}]]") };
        let Value::List(list) = value else { return Err(problem()) };
        let table = |value| match value {
            Value::Table(table) => Ok(table),
            _ => Err(problem()),
        };
        list.into_iter().map(table).collect()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// A field is left over.
    pub fn finish(self) -> Result<(), Problem> {
        match self.entries.into_iter().next() {
            None => Ok(()),
            Some(Entry { key, line, .. }) => Err(Problem { line, what: format!("unknown field `{key}`") }),
        }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// The value cannot stand in a file.
    pub fn put(&mut self, key: &str, value: &impl Field) -> Result<(), String> {
        let value = value.to_value().map_err(|what| format!("{key}: {what}"))?;
        self.entries.push(Entry { key: key.to_owned(), line: 0, value });
        Ok(())
    }

    /// Adds an array of tables.
    pub fn put_tables(&mut self, key: &str, tables: Vec<Table>) {
        let value = Value::List(tables.into_iter().map(Value::Table).collect());
        self.entries.push(Entry { key: key.to_owned(), line: 0, value });
    }
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn from_parsed(mut parsed: toml_span::Value<'_>, line_at: &impl Fn(usize) -> usize) -> Self {
        let line = line_at(parsed.span.start);
        match parsed.take() {
            ValueInner::String(text) => Value::Text(text.into_owned()),
            ValueInner::Integer(number) => Value::Integer(number),
            ValueInner::Float(number) => Value::Float(number),
            ValueInner::Boolean(flag) => Value::Flag(flag),
            ValueInner::Array(list) => {
                Value::List(list.into_iter().map(|value| Self::from_parsed(value, line_at)).collect())
            }
            ValueInner::Table(table) => {
                let mut entries: Vec<_> = table.into_iter().collect();
                entries.sort_by_key(|(key, _)| key.span.start);
                let entry = |(key, value): (toml_span::value::Key<'_>, _)| Entry {
                    line: line_at(key.span.start),
                    key: key.name.into_owned(),
                    value: Self::from_parsed(value, line_at),
                };
                Value::Table(Table { line, entries: entries.into_iter().map(entry).collect() })
            }
        }
    }

    fn is_tables(&self) -> bool {
        matches!(self, Value::List(list) if matches!(list.first(), Some(Value::Table(_))))
    }
}

/// As it stands behind a key. A table is written in one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number:?}"),
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Text(text) => write_text(f, text),
            Value::List(list) => {
                f.write_char('[')?;
                for (index, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Value::Table(table) => {
                f.write_char('{')?;
                for (index, Entry { key, value, .. }) in table.entries.iter().enumerate() {
                    write!(f, "{} {key} = {value}", if index == 0 { "" } else { "," })?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// As a file's text: plain fields first, then tables.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |value: &Value| !value.is_tables() && !matches!(value, Value::Table(_));
        for Entry { key, value, .. } in self.entries.iter().filter(|entry| is_plain(&entry.value)) {
            writeln!(f, "{key} = {value}")?;
        }
        for Entry { key, value, .. } in &self.entries {
            match value {
                Value::Table(table) => write!(f, "\n[{key}]\n{table}")?,
                Value::List(list) if value.is_tables() => {
                    for table in list.iter().filter_map(|value| match value {
                        Value::Table(table) => Some(table),
                        _ => None,
                    }) {
                        write!(f, "\n[[{key}]]\n{table}")?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            _ if character.is_control() => write!(f, "\\u{:04X}", u32::from(character))?,
            _ => f.write_char(character)?,
        }
    }
    f.write_char('"')
}

macro_rules! integer_field {
    ($($type:ident),+) => {$(
        impl Field for $type {
            fn from_value(value: &Value) -> Result<Self, String> {
                let number = match value {
                    Value::Integer(number) => $type::try_from(*number).ok(),
                    _ => None,
                };
                number.ok_or_else(|| format!("{value} was given; it is an integer from 0 to {}", i64::try_from($type::MAX).unwrap_or(i64::MAX)))
            }

            fn to_value(&self) -> Result<Value, String> {
                i64::try_from(*self).map(Value::Integer).map_err(|_| format!("{self} is more than a file can hold, {}", i64::MAX))
            }
        }
    )+};
}

integer_field!(u8, u32, u64);

impl Field for f64 {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Float(number) => Ok(*number),
            Value::Integer(number) => Ok(*number as f64),
            _ => Err(format!("{value} was given; it is a number")),
        }
    }

    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Float(*self))
    }
}

impl Field for bool {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Flag(flag) => Ok(*flag),
            _ => Err(format!("{value} was given; it is true or false")),
        }
    }

    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Flag(*self))
    }
}

impl Field for String {
    fn from_value(value: &Value) -> Result<Self, String> {
        value.as_text().map(str::to_owned).ok_or_else(|| format!("{value} was given; it is a text in quotes"))
    }

    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Text(self.clone()))
    }
}

impl Field for PathBuf {
    fn from_value(value: &Value) -> Result<Self, String> {
        value.as_text().map(PathBuf::from).ok_or_else(|| format!("{value} was given; it is a path in quotes"))
    }

    fn to_value(&self) -> Result<Value, String> {
        let text =
            self.to_str().ok_or_else(|| format!("the path {self:?} is not UTF-8; a file of settings needs that"));
        text.map(|text| Value::Text(text.to_owned()))
    }
}

impl<T: Field> Field for Vec<T> {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::List(list) => list.iter().map(T::from_value).collect(),
            _ => Err(format!("{value} was given; it is an array, in brackets")),
        }
    }

    fn to_value(&self) -> Result<Value, String> {
        self.iter().map(T::to_value).collect::<Result<_, _>>().map(Value::List)
    }
}

impl Field for Table {
    fn from_value(value: &Value) -> Result<Self, String> {
        match value {
            Value::Table(table) => Ok(table.clone()),
            _ => Err(format!("{value} was given; it is a table")),
        }
    }

    fn to_value(&self) -> Result<Value, String> {
        Ok(Value::Table(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn problems_name_the_line_and_what_was_expected() {
        let problem = |text: &str| {
            let mut table = Table::parse(text.as_bytes())?;
            table.take::<u8>("small")?;
            table.take::<PathBuf>("path")?;
            table.take_tables("part")?.into_iter().try_for_each(|mut part| part.require::<bool>("flag").map(drop))?;
            table.finish()
        };
        assert_eq!(problem("small = 255\npath = \"a\"\n[[part]]\nflag = true\n"), Ok(()));
        for (text, line, what) in [
            ("# head\nsmall = 256\n", 2, "0 to 255"),
            ("small = 1\npath = 3\n", 2, "path in quotes"),
            ("small = 1\nsize = 3\n", 2, "unknown field `size`"),
            ("[[part]]\nflag = true\n[[part]]\n", 3, "missing field `flag`"),
            ("part = 3", 1, "[[part]]"),
            ("small = 1\nsmall\n", 2, ""),
            ("small = 1999-01-01\n", 1, ""),
        ] {
            let problem = problem(text).unwrap_err();
            assert!(problem.line == line && problem.what.contains(what), "{text}: {problem:?}");
        }
        assert_eq!(Table::parse(b"a = 1\nb = \"\xff\"").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[a\\[\\]{}=.,\"'\\\\0-9_\\n #e+-]*") {
            let _ = Table::parse(&bytes);
            let _ = Table::parse(text.as_bytes());
        }

        #[test]
        fn what_is_written_is_read_back(text: String, number in 0..i64::MAX as u64, float: f64, texts: Vec<String>) {
            prop_assume!(!float.is_nan());
            let mut part = Table::default();
            part.put("texts", &texts).unwrap();
            let mut table = Table::default();
            table.put("part", &part).unwrap();
            table.put_tables("parts", vec![part.clone(), part]);
            table.put("text", &text).unwrap();
            table.put("number", &number).unwrap();
            table.put("float", &float).unwrap();

            let mut read = Table::parse(table.to_string().as_bytes()).expect("its own text");
            prop_assert_eq!(read.require::<String>("text"), Ok(text));
            prop_assert_eq!(read.require::<u64>("number"), Ok(number));
            prop_assert_eq!(read.require::<f64>("float"), Ok(float));
            let mut parts = read.take_tables("parts").unwrap();
            parts.push(read.require("part").unwrap());
            prop_assert_eq!(parts.len(), 3);
            for mut part in parts {
                prop_assert_eq!(part.require::<Vec<String>>("texts"), Ok(texts.clone()));
            }
            prop_assert_eq!(read.finish(), Ok(()));
        }
    }
}
