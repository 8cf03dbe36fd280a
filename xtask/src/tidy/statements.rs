//! One statement does one thing, outside of tests: no tuple that is made only to be taken apart,
//! and no `match` on a bool.

use super::Finding;
use crate::tree::{SourceFile, Tree};
use proc_macro2::{Delimiter, Span, TokenTree};
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Expr, Lit, Pat};

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.rust() {
        if file.test_only || is_of_tests(&file.path) {
            continue;
        }
        let mut statements = Statements { file, found: Vec::new() };
        statements.visit_file(&source.file);
        let is_code = |one: &Finding| one.line.is_some_and(|line| !source.is_test(line));
        found.extend(statements.found.into_iter().filter(is_code));
    }
    found
}

fn is_of_tests(path: &str) -> bool {
    let is_product = path.starts_with("crates/") || path.starts_with("xtask/");
    !is_product || path.contains("/tests/")
}

struct Statements<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
}

impl Statements<'_> {
    fn report(&mut self, place: Span, says: &str) {
        self.found.push(Finding::at(&self.file.path, place.start().line, says));
    }
}

impl<'ast> Visit<'ast> for Statements<'_> {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        let pattern = match &local.pat {
            Pat::Type(typed) => &*typed.pat,
            pattern => pattern,
        };
        let value = local.init.as_ref().filter(|init| init.diverge.is_none());
        if let (Pat::Tuple(names), Some(init)) = (pattern, value)
            && let Expr::Tuple(values) = &*init.expr
            && names.elems.len() == values.elems.len()
        {
            self.report(local.span(), "a `let` for each name");
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        if let (Expr::Tuple(places), Expr::Tuple(values)) = (&*assign.left, &*assign.right)
            && !depends(places, values)
        {
            self.report(assign.span(), "an assignment for each place");
        }
        syn::visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_match(&mut self, choice: &'ast syn::ExprMatch) {
        let is_bool = |arm: &syn::Arm| match &arm.pat {
            Pat::Lit(pattern) => matches!(pattern.lit, Lit::Bool(_)),
            _ => false,
        };
        if choice.arms.len() == 2 && choice.arms.first().is_some_and(is_bool) {
            self.report(choice.span(), "`if` in place of a `match` on a bool");
        }
        syn::visit::visit_expr_match(self, choice);
    }
}

/// Returns whether a value is made from one of the places, as in a swap.
fn depends(places: &syn::ExprTuple, values: &syn::ExprTuple) -> bool {
    let written = words_of(places);
    let read = words_of(values);
    written.iter().any(|word| word != "self" && read.contains(word))
}

fn words_of(tuple: &syn::ExprTuple) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut next: Vec<TokenTree> = tuple.to_token_stream().into_iter().collect();
    while let Some(tree) = next.pop() {
        match tree {
            TokenTree::Ident(word) => {
                words.insert(word.to_string());
            }
            TokenTree::Group(group) if group.delimiter() != Delimiter::None => {
                next.extend(group.stream());
            }
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const FILE: &str = "crates/a/src/lib.rs";

    fn lines(body: &str) -> Vec<usize> {
        let text = format!("fn f() {{\n{body}\n}}");
        found(findings, &[(FILE, &text)]).into_iter().filter_map(|one| one.1).collect()
    }

    #[test]
    fn tuples_that_are_taken_apart_at_once_are_found() {
        assert_eq!(lines("let (a, b) = (1, 2);"), [2]);
        assert_eq!(lines("let (a, b): (u8, _) = (1, 2);"), [2]);
        assert_eq!(lines("self.a = 1;\n(self.a, self.b) = (1, 2);"), [3]);
        assert_eq!(lines("match is_good { true => 1, false => 2 };"), [2]);
        assert_eq!(lines("match is_good { false => 1, _ => 2 };"), [2]);
    }

    #[test]
    fn what_a_tuple_is_for_is_accepted() {
        assert!(lines("let (a, b) = pair();\n(a, b) = (b, a);\n(a, b) = pair();").is_empty());
        assert!(lines("match (is_good, is_new) { (true, true) => 1, _ => 2 };").is_empty());
        let test = "#[test]\nfn t() {\n    let (a, b) = (1, 2);\n}";
        assert_eq!(found(findings, &[(FILE, test)]), []);
        let body = "fn f() { let (a, b) = (1, 2); }";
        assert_eq!(found(findings, &[("crates/a/tests/it/main.rs", body)]), []);
    }
}
