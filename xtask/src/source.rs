//! A parsed Rust file: the names it uses, its functions and attributes.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::Result;

/// `first::second` somewhere in a file, comments and strings excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUse {
    /// Line of `first`, from 1.
    pub line: usize,
    /// The first segment of the path.
    pub first: String,
    /// The second segment; empty where something else than a name follows.
    pub second: String,
}

/// A name that is part of a path, or of what a `use` brings in, or a field; whatever stands in
/// front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Line, from 1.
    pub line: usize,
    /// The name.
    pub name: String,
}

/// A function and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its signature, from 1.
    pub line: usize,
    /// Lines from the signature to the closing brace, both included.
    pub lines: usize,
}

/// An attribute that silences a lint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silencer {
    /// Line, from 1.
    pub line: usize,
    /// `allow` or `expect`.
    pub kind: &'static str,
    /// The text between the parentheses.
    pub arguments: String,
}

/// The facts about a file that the checks need.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Every path of at least two segments, by its first two.
    pub paths: Vec<PathUse>,
    /// Every segment of these paths, all names in `use`s, and every field.
    pub named: Vec<Named>,
    /// Every function with a body.
    pub functions: Vec<Function>,
    /// Every `allow` and `expect`.
    pub silencers: Vec<Silencer>,
    /// Lines that hold the keyword `unsafe`.
    pub unsafe_lines: Vec<usize>,
    /// Lines in which something is asked of what a call `index()` returns.
    pub calls_of_index: Vec<usize>,
}

impl Source {
    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self> {
        let mut source = Self::default();
        source.read_tokens(text.parse::<TokenStream>().map_err(|error| error.to_string())?);
        source.visit_file(&syn::parse_file(text)?);
        Ok(source)
    }

    fn read_tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Ident(ident) => {
                    let line = ident.span().start().line;
                    let first = ident.to_string();
                    if first == "unsafe" {
                        self.unsafe_lines.push(line);
                    }
                    if first == "index"
                        && is_call_before_dot(tokens.get(at + 1..).unwrap_or_default())
                    {
                        self.calls_of_index.push(line);
                    }
                    let colons = is_colon(tokens.get(at + 1)) && is_colon(tokens.get(at + 2));
                    let continues = at > 0 && is_colon(tokens.get(at - 1));
                    if colons || continues || is_field(tokens.get(..at).unwrap_or_default()) {
                        self.named.push(Named { line, name: first.clone() });
                    }
                    if colons && !continues {
                        let second = match tokens.get(at + 3) {
                            Some(TokenTree::Ident(second)) => second.to_string(),
                            _ => String::new(),
                        };
                        self.paths.push(PathUse { line, first, second });
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn add_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        let last = block.span().end().line;
        let lines = last.saturating_sub(line) + 1;
        self.functions.push(Function { name: signature.ident.to_string(), line, lines });
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// Whether these tokens are `()` and a dot.
fn is_call_before_dot(after: &[TokenTree]) -> bool {
    matches!(after, [TokenTree::Group(group), TokenTree::Punct(dot), ..]
        if group.stream().is_empty() && dot.as_char() == '.')
}

/// Whether what comes after these tokens is a field: one dot stands in front of it, and not two.
fn is_field(before: &[TokenTree]) -> bool {
    let is_dot = |token: Option<&TokenTree>| token.is_some_and(|token| token.to_string() == ".");
    let mut before = before.iter().rev();
    is_dot(before.next()) && !is_dot(before.next())
}

impl<'ast> Visit<'ast> for Source {
    fn visit_use_name(&mut self, used: &'ast syn::UseName) {
        let line = used.ident.span().start().line;
        self.named.push(Named { line, name: used.ident.to_string() });
    }

    fn visit_use_rename(&mut self, used: &'ast syn::UseRename) {
        let line = used.ident.span().start().line;
        self.named.push(Named { line, name: used.ident.to_string() });
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add_function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let kind = ["allow", "expect"].into_iter().find(|kind| attribute.path().is_ident(kind));
        if let (Some(kind), syn::Meta::List(list)) = (kind, &attribute.meta) {
            let line = attribute.span().start().line;
            self.silencers.push(Silencer { line, kind, arguments: list.tokens.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
//! esker_store::not_a_use
#[allow(dead_code)]
mod a {
    use esker_format::{ids, ptr};
    #[expect(unused, reason = "why")]
    fn f() {
        let _ = "esker_index::in_a_string";
        vec![std::mem::size_of::<crate::lsm::X>()];
    }
    trait T {
        fn without_body();
        fn with_body() {}
    }
}
fn g() { unsafe {} }
"#;

    #[test]
    fn paths_are_found_in_uses_and_macros_but_not_in_text() {
        let source = Source::parse(TEXT).unwrap();
        let paths: Vec<_> = source
            .paths
            .iter()
            .map(|path| (path.line, path.first.as_str(), path.second.as_str()))
            .collect();
        let expected = [(5, "esker_format", ""), (9, "std", "mem"), (9, "crate", "lsm")];
        assert_eq!(paths, expected);
    }

    #[test]
    fn names_are_found_wherever_they_stand_in_a_path() {
        let text = "use super::{a, b::{self, c as d}}; fn f() { x.e.g(); (y).h; k..l; m::n!(o) }";
        let source = Source::parse(text).unwrap();
        let mut named: Vec<_> = source.named.iter().map(|named| named.name.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["a", "b", "c", "e", "g", "h", "m", "n", "self", "super"]);
    }

    #[test]
    fn functions_attributes_and_unsafe_are_found() {
        let source = Source::parse(TEXT).unwrap();
        let functions: Vec<_> =
            source.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(functions, [("f", 7, 4), ("with_body", 13, 1), ("g", 16, 1)]);
        let kinds: Vec<_> = source.silencers.iter().map(|s| (s.line, s.kind)).collect();
        assert_eq!(kinds, [(3, "allow"), (6, "expect")]);
        assert_eq!(source.unsafe_lines, [16]);
    }

    #[test]
    fn text_that_is_not_rust_is_an_error() {
        assert!(Source::parse("fn (").is_err());
        assert!(Source::parse("fn f( {}").is_err());
    }
}
