//! One Rust file as rules see it: tokens, code lines, functions, and which parts are tests.
//!
//! A code line is a line that carries at least one token which is not documentation, so blank
//! lines, comments and doc comments never count.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// A token without its delimiters' nesting.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// From the signature to the closing brace.
    pub(crate) lines: RangeInclusive<usize>,
}

pub(crate) struct RustSource {
    pub(crate) file: syn::File,
    /// Everything but documentation, in order.
    pub(crate) tokens: Vec<Token>,
    pub(crate) functions: Vec<Function>,
    /// Modules `name` of `#[cfg(test)] mod name;`: their files hold only tests.
    pub(crate) test_modules: Vec<String>,
    /// The words that macros are called with in the place of items.
    pub(crate) macro_words: Vec<String>,
    code_lines: BTreeSet<usize>,
    tests: Vec<RangeInclusive<usize>>,
}

impl RustSource {
    /// # Errors
    /// Where and why the text is no Rust.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let stream: TokenStream = text.parse().map_err(|e| format!("cannot be read: {e}"))?;
        let file = syn::parse2(stream.clone())
            .map_err(|e| format!("cannot be parsed: {e} (line {})", e.span().start().line))?;
        let mut flat = Flat::default();
        flat.take(stream);
        let mut parts = Parts::default();
        parts.visit_file(&file);
        Ok(Self {
            file,
            tokens: flat.tokens,
            functions: parts.functions,
            test_modules: parts.test_modules,
            macro_words: parts.macro_words,
            code_lines: flat.lines,
            tests: parts.tests,
        })
    }

    pub(crate) fn code_lines_in(&self, lines: &RangeInclusive<usize>) -> usize {
        self.code_lines.range(lines.clone()).count()
    }

    /// Code lines of the file without its tests.
    pub(crate) fn code_lines(&self) -> usize {
        self.code_lines.iter().filter(|line| !self.is_test(**line)).count()
    }

    /// Whether `line` belongs to an item under `#[cfg(test)]` or to a test function.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }
}

pub(crate) fn lines_of(span: Span) -> RangeInclusive<usize> {
    span.start().line..=span.end().line
}

#[derive(Default)]
struct Flat {
    tokens: Vec<Token>,
    lines: BTreeSet<usize>,
}

impl Flat {
    fn take(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            if is_punct(&tree, '#') {
                let inner = trees.next_if(|t| is_punct(t, '!'));
                if trees.next_if(is_documentation).is_some() {
                    continue;
                }
                self.one(tree);
                inner.into_iter().for_each(|bang| self.one(bang));
            } else {
                self.one(tree);
            }
        }
    }

    fn one(&mut self, tree: TokenTree) {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                self.push(group.span_open(), open.to_owned());
                self.take(group.stream());
                self.push(group.span_close(), close.to_owned());
            }
            leaf => self.push(leaf.span(), leaf.to_string()),
        }
    }

    fn push(&mut self, span: Span, text: String) {
        let lines = lines_of(span);
        self.tokens.push(Token { line: *lines.start(), text });
        self.lines.extend(lines);
    }
}

fn is_punct(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(p) if p.as_char() == sign)
}

/// The bracket of `#[doc = …]`, which is also what `///` and `//!` become.
fn is_documentation(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    let mut inside = group.stream().into_iter();
    matches!(inside.next(), Some(TokenTree::Ident(word)) if word == "doc")
        && matches!(inside.next(), Some(sign) if is_punct(&sign, '='))
}

#[derive(Default)]
struct Parts {
    functions: Vec<Function>,
    tests: Vec<RangeInclusive<usize>>,
    test_modules: Vec<String>,
    macro_words: Vec<String>,
}

impl Parts {
    fn function(&mut self, signature: &syn::Signature, body_end: Span) {
        let lines = signature.span().start().line..=body_end.end().line;
        self.functions.push(Function { name: signature.ident.to_string(), lines });
    }

    fn note_test(&mut self, attributes: &[syn::Attribute], whole: Span) {
        if attributes.iter().any(is_for_tests) {
            self.tests.push(lines_of(whole));
        }
    }
}

/// `#[cfg(test)]`, `#[cfg(all(test, …))]`, `#[test]`, `#[tokio::test]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().segments.last().is_some_and(|last| last.ident == "test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let mut flat = Flat::default();
    flat.take(list.tokens.clone());
    let has = |word: &str| flat.tokens.iter().any(|t| t.text == word);
    has("test") && !has("not") && !has("any")
}

impl<'ast> Visit<'ast> for Parts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.note_test(attributes_of(item), item.span());
        if let syn::Item::Mod(module) = item
            && module.content.is_none()
            && module.attrs.iter().any(is_for_tests)
        {
            self.test_modules.push(module.ident.to_string());
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_none() {
            let words = item.mac.tokens.clone().into_iter().filter_map(|tree| match tree {
                TokenTree::Ident(word) => Some(word.to_string()),
                _ => None,
            });
            self.macro_words.extend(words);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, item.block.span());
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note_test(&item.attrs, item.span());
        self.function(&item.sig, item.block.span());
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body.span());
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// The attributes of an item of any kind.
pub(crate) fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"//! Head.

/// Says a thing.
///
/// At length.
#[inline]
fn says() {
    // why
    let text = "two
lines";
    /* how */
}

#[cfg(not(test))]
fn product() {}

#[cfg(test)]
mod apart;

#[cfg(test)]
mod tests {
    #[test]
    fn inner() {}
    proptest! { fn hidden(x in 0..1) {} }
}
"#;

    fn sample() -> RustSource {
        RustSource::parse(SAMPLE).expect("the sample is Rust")
    }

    #[test]
    fn docs_comments_and_blanks_are_no_code() {
        let source = sample();
        // fn, let over two lines, brace; and the attribute above it; product with its attribute.
        assert_eq!(source.code_lines(), 7);
        assert_eq!(source.code_lines_in(&source.functions[0].lines), 4);
    }

    #[test]
    fn tests_are_distinguished_from_the_product() {
        let source = sample();
        let line = |of: &str| SAMPLE.lines().position(|l| l.contains(of)).map_or(0, |i| i + 1);
        assert!(source.is_test(line("fn inner")));
        assert!(!source.is_test(line("fn product")));
        assert_eq!(source.test_modules, ["apart"]);
    }

    #[test]
    fn macros_are_called_with_words() {
        let source = RustSource::parse("each! { one two }\nmacro_rules! m { () => {} }");
        assert_eq!(source.expect("Rust").macro_words, ["one", "two"]);
    }

    #[test]
    fn invalid_rust_is_reported_with_its_line() {
        let reply = RustSource::parse("fn good() {}\nfn bad( {}\n").err().expect("refused");
        assert!(reply.contains("cannot be"), "{reply}");
    }
}
