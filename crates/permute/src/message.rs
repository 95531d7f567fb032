//! Texts that name options, for users of the command line and for callers of a function.
//!
//! A text says what to change, and what is changed is called `--memory 1MiB` on the command line
//! and `memory="1MiB"` in Python. So an option is a separate part of a text, written in the form
//! for the text's reader.

use std::fmt;

/// A text of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Option(&'static str, Value),
}

/// The value of an option that a text proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: the option is only named.
    Any,
    /// It is a switch, and on.
    On,
    /// A text, such as a size with its unit.
    Text(String),
    /// A number.
    Number(u64),
    /// Sizes of dimensions.
    Sizes(Vec<u64>),
}

impl Message {
    /// Adds text.
    #[must_use]
    pub fn then(mut self, text: impl Into<String>) -> Self {
        self.0.push(Part::Text(text.into()));
        self
    }

    /// Adds an option, by its name with underscores.
    #[must_use]
    pub fn option(mut self, name: &'static str, value: Value) -> Self {
        self.0.push(Part::Option(name, value));
        self
    }

    /// The text with another before it.
    #[must_use]
    pub fn after(mut self, text: impl Into<String>) -> Self {
        self.0.insert(0, Part::Text(text.into()));
        self
    }

    /// The text as Python says it, with options as keyword arguments.
    #[must_use]
    pub fn in_python(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Option(name, Value::Any) => (*name).to_owned(),
            Part::Option(name, Value::On) => format!("{name}=True"),
            Part::Option(name, Value::Text(text)) => format!("{name}=\"{text}\""),
            Part::Option(name, Value::Number(number)) => format!("{name}={number}"),
            Part::Option(name, Value::Sizes(sizes)) => format!("{name}={}", tuple(sizes)),
        };
        self.0.iter().map(part).collect()
    }
}

/// As the command line says it.
impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Text(text) => formatter.write_str(text)?,
                Part::Option(name, value) => {
                    write!(formatter, "--{}", name.replace('_', "-"))?;
                    match value {
                        Value::Any | Value::On => {}
                        Value::Text(text) => write!(formatter, " {text}")?,
                        Value::Number(number) => write!(formatter, " {number}")?,
                        Value::Sizes(sizes) => write!(formatter, " {}", list(sizes, ","))?,
                    }
                }
            }
        }
        Ok(())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::default().then(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::default().then(text)
    }
}

fn list(sizes: &[u64], between: &str) -> String {
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    sizes.join(between)
}

/// Sizes as Python writes a tuple.
pub(crate) fn tuple(sizes: &[u64]) -> String {
    match sizes {
        [one] => format!("({one},)"),
        _ => format!("({})", list(sizes, ", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_a_flag_or_a_keyword() {
        let message = Message::from("give ")
            .option("zarr_format", Value::Number(2))
            .then(", ")
            .option("chunks", Value::Sizes(vec![7]))
            .then(", ")
            .option("memory", Value::Text("1MiB".into()))
            .then(", ")
            .option("force", Value::On)
            .then(" or ")
            .option("shape", Value::Any)
            .after("a: ");
        let command = "a: give --zarr-format 2, --chunks 7, --memory 1MiB, --force or --shape";
        assert_eq!(message.to_string(), command);
        let python = "a: give zarr_format=2, chunks=(7,), memory=\"1MiB\", force=True or shape";
        assert_eq!(message.in_python(), python);
    }
}
