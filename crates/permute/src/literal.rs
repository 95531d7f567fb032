//! Literals of Python, as `ast.literal_eval` reads them.
//!
//! The header of an `.npy` file is one, and numpy reads it so. What is not distinguished here is
//! [`Literal::Other`]: it is read to its end, and of no use. Not read, and refused, are sums of
//! complex numbers, `set()`, `...` and characters by name (`\N{…}`).

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Text(String),
    Bool(bool),
    /// A whole number; `None` for one below 0 or of more than 64 bits.
    Whole(Option<u64>),
    Tuple(Vec<Literal>),
    /// Keys and values as they come, repeats too.
    Dict(Vec<(Literal, Literal)>),
    Other,
}

/// Brackets within brackets.
const DEPTH_MAX: u32 = 64;

/// Reads a dictionary that is all of the text. `has_long` says that whole numbers may end in `L`,
/// as Python 2 wrote them.
pub(crate) fn dictionary(text: &str, has_long: bool) -> Option<Vec<(Literal, Literal)>> {
    // The end of the text is no character of it.
    if text.contains('\0') {
        return None;
    }
    let mut reader = Reader { rest: text.trim_start_matches([' ', '\t']), has_long, depth: 0 };
    reader.lines_before()?;
    if !matches!(reader.peek(), '{' | '(') {
        return None;
    }
    let value = reader.value()?;
    reader.lines_after()?;
    match value {
        Literal::Dict(entries) => Some(entries),
        _ => None,
    }
}

struct Reader<'a> {
    rest: &'a str,
    has_long: bool,
    depth: u32,
}

const fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

impl<'a> Reader<'a> {
    /// The next character; `'\0'` at the end.
    fn peek(&self) -> char {
        self.rest.chars().next().unwrap_or('\0')
    }

    fn take(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next()?;
        self.rest = characters.as_str();
        Some(next)
    }

    fn skip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (head, tail) = self.rest.split_at(end);
        self.rest = tail;
        head
    }

    fn skip_comment(&mut self) {
        if self.peek() == '#' {
            self.skip_while(|c| !is_newline(c));
        }
    }

    /// Skips the blanks of a line and of its continuation lines. Returns whether they leave the
    /// column at 0.
    fn skip_indent(&mut self) -> Option<bool> {
        let mut column = 0;
        let mut first = 0;
        loop {
            for blank in self.skip_while(is_blank).chars() {
                // A form feed sets the column back.
                column = if blank == '\x0c' { 0 } else { column + 1 };
            }
            if !self.skip_continuation() {
                return Some(first == 0 && column == 0);
            }
            if self.rest.is_empty() {
                return None;
            }
            first = if first == 0 { column } else { first };
        }
    }

    fn skip_continuation(&mut self) -> bool {
        ["\\\r\n", "\\\n", "\\\r"].iter().any(|mark| self.skip(mark))
    }

    /// Lines without a value, before one that is not indented.
    fn lines_before(&mut self) -> Option<()> {
        loop {
            let is_at_margin = self.skip_indent()?;
            self.skip_comment();
            if self.skip_while(is_newline).is_empty() {
                return is_at_margin.then_some(());
            }
        }
    }

    /// Lines without a value, to the end.
    fn lines_after(&mut self) -> Option<()> {
        let mut is_first = true;
        loop {
            let is_at_margin = self.skip_indent()? || is_first || self.peek() == '#';
            self.skip_comment();
            if self.skip_while(is_newline).is_empty() {
                // Blanks at the end of all are an indented line, unless Python 2's text is tidied.
                let fits = self.has_long || is_at_margin;
                return (self.rest.is_empty() && fits).then_some(());
            }
            is_first = false;
        }
    }

    /// Skips everything that may be between tokens within brackets.
    fn skip_space(&mut self) {
        loop {
            self.skip_while(|c| is_blank(c) || is_newline(c));
            self.skip_comment();
            if !self.skip_continuation() && !is_newline(self.peek()) {
                return;
            }
        }
    }

    fn value(&mut self) -> Option<Literal> {
        match self.peek() {
            '{' | '(' | '[' => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return None;
                }
                let value = match self.take()? {
                    '{' => self.braces(),
                    '(' => self.parentheses(),
                    _ => self.items(']', Vec::new()).map(|_| Literal::Other),
                };
                self.depth -= 1;
                value
            }
            '+' | '-' => {
                let is_negative = self.take()? == '-';
                self.skip_space();
                match self.number()? {
                    Literal::Whole(Some(0)) => Some(Literal::Whole(Some(0))),
                    Literal::Whole(_) if is_negative => Some(Literal::Whole(None)),
                    number => Some(number),
                }
            }
            '0'..='9' | '.' => self.number(),
            _ if self.begins_text() => self.texts(),
            _ => match self.skip_while(is_in_name) {
                "True" => Some(Literal::Bool(true)),
                "False" => Some(Literal::Bool(false)),
                "None" => Some(Literal::Other),
                _ => None,
            },
        }
    }

    /// The rest of values with commas between them, up to a bracket.
    fn items(&mut self, end: char, mut items: Vec<Literal>) -> Option<Vec<Literal>> {
        loop {
            self.skip_space();
            if self.peek() == end {
                self.take();
                return Some(items);
            }
            items.push(self.value()?);
            self.skip_space();
            if self.peek() != end && !self.skip(",") {
                return None;
            }
        }
    }

    /// A tuple, or a value in parentheses.
    fn parentheses(&mut self) -> Option<Literal> {
        self.skip_space();
        if self.skip(")") {
            return Some(Literal::Tuple(Vec::new()));
        }
        let first = self.value()?;
        self.skip_space();
        match self.take()? {
            ')' => Some(first),
            ',' => self.items(')', vec![first]).map(Literal::Tuple),
            _ => None,
        }
    }

    /// A dictionary or a set.
    fn braces(&mut self) -> Option<Literal> {
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            if self.skip("}") {
                return Some(Literal::Dict(entries));
            }
            let key = self.value()?;
            self.skip_space();
            match self.take()? {
                ':' => {}
                '}' if entries.is_empty() => return Some(Literal::Other),
                ',' if entries.is_empty() => {
                    return self.items('}', vec![key]).map(|_| Literal::Other);
                }
                _ => return None,
            }
            self.skip_space();
            entries.push((key, self.value()?));
            self.skip_space();
            if self.peek() != '}' && !self.skip(",") {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Literal> {
        let radix = match self.rest.as_bytes() {
            [b'0', b'x' | b'X', ..] => 16,
            [b'0', b'o' | b'O', ..] => 8,
            [b'0', b'b' | b'B', ..] => 2,
            _ => 10,
        };
        let number = if radix == 10 {
            self.decimal()?
        } else {
            self.take();
            self.take();
            // One underscore may follow the letter.
            self.skip("_");
            whole(self.skip_while(|c| c.is_ascii_hexdigit() || c == '_'), radix)?
        };
        if self.has_long {
            let before = self.rest;
            self.skip_while(is_blank);
            if !self.skip("L") || is_in_name(self.peek()) {
                self.rest = before;
            }
        }
        (!is_in_name(self.peek()) && self.peek() != '.').then_some(number)
    }

    /// A number in figures of ten, whole or not.
    fn decimal(&mut self) -> Option<Literal> {
        let is_figure = |c: char| c.is_ascii_digit() || c == '_';
        let head = self.skip_while(is_figure);
        let mut is_whole = true;
        if self.skip(".") {
            is_whole = false;
            let tail = self.skip_while(is_figure);
            if head.is_empty() && tail.is_empty() || !tail.is_empty() && whole(tail, 10).is_none() {
                return None;
            }
        }
        if matches!(self.peek(), 'e' | 'E') {
            is_whole = false;
            self.take();
            if !self.skip("+") {
                self.skip("-");
            }
            whole(self.skip_while(is_figure), 10)?;
        }
        if matches!(self.peek(), 'j' | 'J') {
            is_whole = false;
            self.take();
        }
        if head.is_empty() {
            return Some(Literal::Other);
        }
        let number = whole(head, 10)?;
        let has_zeros = head.starts_with('0') && head.contains(|c| !matches!(c, '0' | '_'));
        if is_whole { (!has_zeros).then_some(number) } else { Some(Literal::Other) }
    }

    /// The prefix before the quote of a text, if one begins here.
    fn prefix(&self) -> Option<&'a str> {
        let end = self.rest.find(['\'', '"'])?;
        let prefix = self.rest.get(..end)?;
        let known = ["", "r", "u", "b", "br", "rb"];
        known.iter().any(|one| prefix.eq_ignore_ascii_case(one)).then_some(prefix)
    }

    fn begins_text(&self) -> bool {
        self.prefix().is_some()
    }

    /// A text, or several one after the other, which are one.
    fn texts(&mut self) -> Option<Literal> {
        let mut all = String::new();
        let mut kind = None;
        while let Some(prefix) = self.prefix() {
            self.skip(prefix);
            let has = |letter: char| prefix.contains([letter, letter.to_ascii_uppercase()]);
            let is_bytes = has('b');
            if kind.is_some_and(|kind| kind != is_bytes) {
                return None;
            }
            kind = Some(is_bytes);
            let text = self.text(has('r'), is_bytes)?;
            if is_bytes && !text.is_ascii() {
                return None;
            }
            all.push_str(&text);
            self.skip_space();
        }
        Some(if kind == Some(true) { Literal::Other } else { Literal::Text(all) })
    }

    /// A text from its first quote to its last.
    fn text(&mut self, is_raw: bool, is_bytes: bool) -> Option<String> {
        let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| self.skip(quote))?;
        let mut text = String::new();
        loop {
            if self.skip(quote) {
                return Some(text);
            }
            match self.take()? {
                c if is_newline(c) && quote.len() == 1 => return None,
                '\\' if is_raw => {
                    text.push('\\');
                    text.push(self.take()?);
                }
                '\\' => self.escape(&mut text, is_bytes)?,
                c => text.push(c),
            }
        }
    }

    /// Reads the escape that follows a backslash.
    fn escape(&mut self, text: &mut String, is_bytes: bool) -> Option<()> {
        let next = self.take()?;
        let escaped = match next {
            '\n' => return Some(()),
            '\r' => {
                self.skip("\n");
                return Some(());
            }
            '\\' | '\'' | '"' => next,
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0'..='7' => {
                let mut code = next.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = self.peek().to_digit(8) else { break };
                    code = code * 8 + digit;
                    self.take();
                }
                // Of bytes the value is of no use.
                if is_bytes { '?' } else { char::from_u32(code)? }
            }
            'x' => {
                let code = self.code(2)?;
                if is_bytes { '?' } else { char::from_u32(code)? }
            }
            'u' | 'U' if !is_bytes => {
                let code = self.code(if next == 'u' { 4 } else { 8 })?;
                // Half of a pair is a character to Python, and none of a type.
                match code {
                    0xd800..0xe000 => char::REPLACEMENT_CHARACTER,
                    _ => char::from_u32(code)?,
                }
            }
            'N' if !is_bytes => return None,
            other => {
                text.push('\\');
                other
            }
        };
        text.push(escaped);
        Some(())
    }

    /// A number of this many hexadecimal digits.
    fn code(&mut self, figures: usize) -> Option<u32> {
        let (head, tail) = self.rest.split_at_checked(figures)?;
        if !head.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = tail;
        u32::from_str_radix(head, 16).ok()
    }
}

/// A whole number; `None` where its figures, or the underscores between them, are wrong.
fn whole(figures: &str, radix: u32) -> Option<Literal> {
    let is_right = !figures.is_empty()
        && !figures.starts_with('_')
        && !figures.ends_with('_')
        && !figures.contains("__")
        && figures.chars().all(|c| c == '_' || c.is_digit(radix));
    let number = u64::from_str_radix(&figures.replace('_', ""), radix);
    is_right.then(|| Literal::Whole(number.ok()))
}

#[cfg(test)]
mod tests;
