//! What a row holds: all of its value, or the name of a large one.

use super::Value;
use crate::{
    error::{Error, ErrorKind, Result},
    tree::{LeafValue, Reference},
};

/// A row's value, inside the engine: a large one is not read before a caller asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Value),
    /// It lies in the table's [value tree](super::large_values).
    Large(Reference),
}

impl Content {
    pub fn of(value: LeafValue<'_>) -> Self {
        match value {
            LeafValue::Bytes(bytes) => Self::Bytes(bytes.into()),
            LeafValue::Reference(reference) => Self::Large(reference),
        }
    }

    pub fn as_leaf(&self) -> LeafValue<'_> {
        match self {
            Self::Bytes(value) => LeafValue::Bytes(value),
            Self::Large(reference) => LeafValue::Reference(*reference),
        }
    }

    pub fn reference(&self) -> Option<Reference> {
        match self {
            Self::Bytes(_) => None,
            Self::Large(reference) => Some(*reference),
        }
    }

    /// The value of a row that has all of it.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) if it does not.
    pub fn into_bytes(self) -> Result<Value> {
        match self {
            Self::Bytes(value) => Ok(value),
            Self::Large(Reference { id, .. }) => {
                let what =
                    format!("a row names large value {id} where none can be; restore the database from a backup");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
        }
    }

    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(value) => value.len() as u64,
            Self::Large(reference) => reference.length.into(),
        }
    }

    /// Bytes of its value that are in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Bytes(value) => value.len(),
            Self::Large(_) => 0,
        }
    }
}

impl From<Value> for Content {
    fn from(value: Value) -> Self {
        Self::Bytes(value)
    }
}
