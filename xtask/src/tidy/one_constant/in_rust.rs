//! Copies of the contract's times and lengths in Rust.
//!
//! A literal is a copy if it has a constant's value, and what it stands for has a word of the
//! constant: a lease of 30 s is a copy, a pause of 30 s is not. What it stands for is the constant,
//! field, variable, function or method that it is written for, with its docs.
//!
//! An attribute takes no constant. There a comment at the end of the line names it, as in
//! `#[schema(max_length = 512)] // MAX_NAME_BYTES`, and the line must have the constant's number.

use super::numbers;
use crate::rust_source::lines_of;
use crate::tidy::Finding;
use crate::tree::SourceFile;
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The crates that only tests and benchmarks use: they choose times of their own.
const TEST_CRATES: [&str; 5] = ["bench", "conformance", "services", "sim", "torture"];
/// The smallest number without a unit that may be a time in seconds.
const SMALLEST_SECONDS: u64 = 10;

/// A constant that must not be written as a literal.
pub(super) struct Constant {
    pub(super) name: &'static str,
    pub(super) amount: Amount,
    /// A word of what a copy of it stands for.
    pub(super) word: &'static str,
}

/// What a constant or a literal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Millis(u64),
    Bytes(u64),
    /// A literal without a unit.
    Plain(u64),
}

impl Constant {
    fn has_value(&self, literal: Amount) -> bool {
        let Amount::Plain(number) = literal else { return literal == self.amount };
        match self.amount {
            Amount::Millis(millis) => {
                let is_seconds =
                    number >= SMALLEST_SECONDS && millis == number.saturating_mul(1_000);
                is_seconds || number == millis || number == millis * 1_000
            }
            Amount::Bytes(bytes) | Amount::Plain(bytes) => number == bytes,
        }
    }

    fn is_meant_by(&self, subject: &BTreeSet<String>) -> bool {
        subject.contains(self.word) || subject.contains(&format!("{}s", self.word))
    }
}

/// Whether the rule looks into a file.
pub(super) fn is_product(file: &SourceFile) -> bool {
    let mut parts = file.path.strip_prefix("crates/").unwrap_or_default().split('/');
    let is_test_crate = parts.next().is_none_or(|name| TEST_CRATES.contains(&name));
    let is_source = parts.any(|part| part == "src");
    is_source && !is_test_crate && !file.test_only
}

pub(super) fn findings(file: &SourceFile, constants: &[Constant]) -> Vec<Finding> {
    let Some(source) = &file.rust else { return Vec::new() };
    let lines: Vec<&str> = file.text.lines().collect();
    let mut literals = Literals::default();
    literals.visit_file(&source.file);
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for literal in literals.found {
        let is_copy =
            |one: &&Constant| one.has_value(literal.amount) && one.is_meant_by(&literal.subject);
        let Some(constant) = constants.iter().find(is_copy) else { continue };
        let text = lines.get(literal.line - 1).copied().unwrap_or_default();
        let is_named = literal.in_attribute && named(text, constants).is_some();
        if is_named || is_definition(text, constants) || source.is_test(literal.line) {
            continue;
        }
        let says = format!("a copy of `{}` or its like: use the constant", constant.name);
        found.insert(literal.line, says);
    }
    for (index, text) in lines.iter().enumerate() {
        let Some(constant) = named(text, constants) else { continue };
        if !numbers(&text.replace('_', ""))
            .iter()
            .any(|(_, one)| constant.has_value(Amount::Plain(*one)))
        {
            found.insert(index + 1, format!("the number of `{}` is another", constant.name));
        }
    }
    found.into_iter().map(|(line, says)| Finding::at(&file.path, line, says)).collect()
}

fn is_definition(line: &str, constants: &[Constant]) -> bool {
    constants.iter().any(|one| line.starts_with(&format!("pub const {}:", one.name)))
}

/// Returns the constant that the comment at the end of a line names.
fn named<'c>(line: &str, constants: &'c [Constant]) -> Option<&'c Constant> {
    let (_, comment) = line.rsplit_once("// ")?;
    constants.iter().find(|one| one.name == comment)
}

/// A number in the source, and the words of what it stands for.
struct Literal {
    line: usize,
    amount: Amount,
    subject: BTreeSet<String>,
    in_attribute: bool,
}

#[derive(Default)]
struct Literals {
    found: Vec<Literal>,
}

impl Literals {
    /// Takes the numbers of expressions that stand for `subject`.
    fn take<'e>(&mut self, subject: &str, exprs: impl IntoIterator<Item = &'e syn::Expr>) {
        let mut amounts = Amounts::default();
        for expr in exprs {
            amounts.visit_expr(expr);
        }
        self.add(subject, amounts, false);
    }

    /// Takes the numbers of a field's attributes.
    fn take_attributes(&mut self, subject: &str, attributes: &[syn::Attribute]) {
        let mut amounts = Amounts::default();
        for attribute in attributes {
            if let syn::Meta::List(list) = &attribute.meta {
                amounts.take_tokens(list.tokens.clone());
            }
        }
        self.add(subject, amounts, true);
    }

    fn add(&mut self, subject: &str, amounts: Amounts, in_attribute: bool) {
        let subject = words_of(subject);
        for (line, amount) in amounts.0 {
            self.found.push(Literal { line, amount, subject: subject.clone(), in_attribute });
        }
    }
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.take(&format!("{} {}", item.ident, docs(&item.attrs)), [&*item.expr]);
        syn::visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.take(&format!("{} {}", item.ident, docs(&item.attrs)), [&*item.expr]);
        syn::visit::visit_item_static(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.take(&format!("{} {}", item.ident, docs(&item.attrs)), [&item.expr]);
        syn::visit::visit_impl_item_const(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        self.take_attributes(&format!("{name} {}", docs(&field.attrs)), &field.attrs);
        syn::visit::visit_field(self, field);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.take(&field.member.to_token_stream().to_string(), [&field.expr]);
        syn::visit::visit_field_value(self, field);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let init = local.init.iter().map(|init| &*init.expr);
        self.take(&local.pat.to_token_stream().to_string(), init);
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.take(&call.func.to_token_stream().to_string(), &call.args);
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.take(&call.method.to_string(), &call.args);
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.take(&binary.to_token_stream().to_string(), [&*binary.left, &*binary.right]);
        syn::visit::visit_expr_binary(self, binary);
    }
}

/// The numbers of an expression, with their lines; not those of blocks and closures in it, which
/// stand for something else.
#[derive(Default)]
struct Amounts(Vec<(usize, Amount)>);

impl Amounts {
    fn take_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        for tree in tokens {
            match tree {
                proc_macro2::TokenTree::Group(group) => self.take_tokens(group.stream()),
                proc_macro2::TokenTree::Literal(literal) => {
                    let line = *lines_of(literal.span()).start();
                    let number = syn::parse_str::<syn::LitInt>(&literal.to_string());
                    let number = number.ok().and_then(|number| number.base10_parse().ok());
                    self.0.extend(number.map(|number| (line, Amount::Plain(number))));
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Amounts {
    fn visit_expr(&mut self, expr: &'ast syn::Expr) {
        let line = *lines_of(expr.span()).start();
        if let Some(millis) = duration(expr) {
            self.0.push((line, Amount::Millis(millis)));
        } else if let Some(number) = product(expr) {
            self.0.push((line, Amount::Plain(number)));
        } else {
            syn::visit::visit_expr(self, expr);
        }
    }

    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}

    fn visit_arm(&mut self, _: &'ast syn::Arm) {}
}

/// Returns the milliseconds of `Duration::from_secs(…)` and the like.
fn duration(expr: &syn::Expr) -> Option<u64> {
    let syn::Expr::Call(call) = expr else { return None };
    let syn::Expr::Path(path) = &*call.func else { return None };
    let segments = &path.path.segments;
    if !segments.iter().any(|segment| segment.ident == "Duration") {
        return None;
    }
    let number = product(call.args.first()?)?;
    match segments.last()?.ident.to_string().as_str() {
        "from_hours" => number.checked_mul(60 * 60 * 1_000),
        "from_mins" => number.checked_mul(60 * 1_000),
        "from_secs" => number.checked_mul(1_000),
        "from_millis" => Some(number),
        _ => None,
    }
}

/// Returns the value of a whole number, or of several that are multiplied.
fn product(expr: &syn::Expr) -> Option<u64> {
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
            number.base10_parse().ok()
        }
        syn::Expr::Binary(binary) if matches!(binary.op, syn::BinOp::Mul(_)) => {
            product(&binary.left)?.checked_mul(product(&binary.right)?)
        }
        _ => None,
    }
}

/// The words of a text in small letters, also those within names such as `MAX_LEASE`.
fn words_of(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for name in text.split(|c: char| !c.is_ascii_alphabetic()) {
        let is_camel = name.chars().any(|c| c.is_ascii_lowercase());
        let starts = name.match_indices(|c: char| is_camel && c.is_ascii_uppercase());
        let mut begin = 0;
        for (start, _) in starts.chain([(name.len(), "")]) {
            words.insert(name[begin..start].to_ascii_lowercase());
            begin = start;
        }
    }
    words
}

fn docs(attributes: &[syn::Attribute]) -> String {
    let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    docs.map(|docs| docs.meta.to_token_stream().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const PATH: &str = "crates/server/src/locks.rs";
    const NONE: [usize; 0] = [];

    fn lines(text: &str) -> Vec<usize> {
        let constants = [
            Constant { name: "MAX_LEASE", amount: Amount::Millis(86_400_000), word: "lease" },
            Constant { name: "QUEUE_SILENCE", amount: Amount::Millis(4_000), word: "silence" },
            Constant { name: "MAX_NAME_BYTES", amount: Amount::Bytes(512), word: "name" },
        ];
        let tree = Tree::of([(PATH, text)]).expect("Rust");
        let found = findings(&tree.files[0], &constants);
        found.into_iter().filter_map(|finding| finding.line).collect()
    }

    #[test]
    fn a_literal_is_a_copy_if_what_it_stands_for_has_a_word_of_the_constant() {
        for copy in [
            "const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3_600);",
            "#[doc = \"The longest lease.\"] const LONGEST_MS: i64 = 86_400_000;",
            "fn f() { options.with_lease(Duration::from_hours(24)); }",
            "fn f() { let terms = LeaseTerms::new(Duration::from_hours(24)); }",
            "fn f() { let a = A { lease: Duration::from_hours(24) }; }",
            "fn f() { if name.len() > 512 { return; } }",
            "fn f() { let silence_ms = 4_000; }",
        ] {
            assert_eq!(lines(copy), [1], "{copy}");
        }
        for other in [
            "const DAY: Duration = Duration::from_secs(86_400);",
            "fn f() { let silences = 4; }",
            "fn f() { let lease = pick(|| 86_400_000); }",
            "fn f() { let size = 512; }",
        ] {
            assert_eq!(lines(other), NONE, "{other}");
        }
    }

    #[test]
    fn the_constant_itself_and_tests_are_no_copies() {
        assert_eq!(lines("pub const MAX_NAME_BYTES: usize = 512;"), NONE);
        assert_eq!(lines("#[cfg(test)]\nmod tests { const NAME: usize = 512; }"), NONE);
    }

    #[test]
    fn an_attribute_names_the_constant_in_a_comment() {
        let field = |line: &str| lines(&format!("struct S {{\n{line}\nname: String }}"));
        assert_eq!(field("#[schema(max_length = 512)]"), [2]);
        assert_eq!(field("#[schema(max_length = 512)] // MAX_NAME_BYTES"), NONE);
        assert_eq!(field("#[schema(max_length = 500)] // MAX_NAME_BYTES"), [2]);
        assert_eq!(field("#[schema(max_items = 500)]"), NONE);
    }

    #[test]
    fn only_product_code_is_read() {
        let is_read = |path: &str| is_product(&Tree::of([(path, "")]).expect("Rust").files[0]);
        assert!(is_read("crates/engines/etcd/src/renew.rs") && is_read("crates/cli/src/main.rs"));
        let tests = ["crates/engines/etcd/tests/it/main.rs", "crates/sim/src/lib.rs"];
        assert!(!tests.into_iter().any(is_read));
    }
}
