//! One statement does one thing, outside of tests: no tuple that is made only to be taken apart, no
//! `match` on a bool, no tuple as a parameter, and no tuple of three or more as a result.

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
        let mut statements = Statements { file, found: Vec::new(), is_of_trait: false };
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
    /// Inside the implementation of a trait.
    is_of_trait: bool,
}

impl Statements<'_> {
    fn report(&mut self, place: Span, says: &str) {
        self.found.push(Finding::at(&self.file.path, place.start().line, says));
    }
}

impl<'ast> Visit<'ast> for Statements<'_> {
    /// What implements a trait has the signature of the trait, which may be of another crate.
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let is_of_trait = std::mem::replace(&mut self.is_of_trait, block.trait_.is_some());
        syn::visit::visit_item_impl(self, block);
        self.is_of_trait = is_of_trait;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if self.is_of_trait {
            return;
        }
        for input in &signature.inputs {
            let syn::FnArg::Typed(parameter) = input else { continue };
            if is_tuple(&parameter.ty, 2) {
                self.report(parameter.span(), "a parameter for each value, or a named struct");
            }
        }
        let mut triples = Triples(None);
        triples.visit_return_type(&signature.output);
        if let Some(place) = triples.0 {
            self.report(place, "a struct that names each part of the result");
        }
        syn::visit::visit_signature(self, signature);
    }

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

/// Returns whether a type is a tuple of at least as many parts, or a reference to one.
fn is_tuple(ty: &syn::Type, parts: usize) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => tuple.elems.len() >= parts,
        syn::Type::Reference(reference) => is_tuple(&reference.elem, parts),
        _ => false,
    }
}

/// The first tuple of three or more in a type.
struct Triples(Option<Span>);

impl<'ast> Visit<'ast> for Triples {
    fn visit_type(&mut self, ty: &'ast syn::Type) {
        if self.0.is_none() && is_tuple(ty, 3) {
            self.0 = Some(ty.span());
        }
        syn::visit::visit_type(self, ty);
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
    fn tuples_in_place_of_names_are_found() {
        let at = |text: &str| found(findings, &[(FILE, text)]).len();
        assert_eq!(at("fn f((a, b): (u8, u8)) {}"), 1);
        assert_eq!(at("trait T { fn f(&self, pair: &(u8, u8)); }"), 1);
        assert_eq!(at("fn f() -> Option<(u8, u8, u8)> { None }"), 1);
        assert_eq!(at("impl From<(u8, u8)> for A { fn from(pair: (u8, u8)) -> A { A } }"), 0);
        assert_eq!(at("fn f(_: (), pairs: &[(u8, u8)]) -> (u8, u8) { pairs[0] }"), 0);
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
