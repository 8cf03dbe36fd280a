//! Docs of items use the same headings, so that a reader knows where to look.

use super::Finding;
use crate::rust_source::RustSource;
use crate::tree::Tree;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The headings in the order in which they stand.
const HEADINGS: [&str; 6] =
    ["Errors", "Panics", "Cancel safety", "Fairness", "Guarantees", "Examples"];

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.rust().filter(|(file, _)| file.path.starts_with("crates/")) {
        for WrongHeading { line, heading, before } in wrong_headings(source) {
            let says = match before {
                None => format!("`# {heading}` is none of: {}", HEADINGS.join(", ")),
                Some(before) => format!("`# {heading}` stands before `# {before}`"),
            };
            found.push(Finding::at(&file.path, line, says));
        }
    }
    found
}

struct WrongHeading {
    line: usize,
    heading: String,
    /// The heading that it should have stood before.
    before: Option<String>,
}

fn wrong_headings(source: &RustSource) -> Vec<WrongHeading> {
    let mut docs = Docs::default();
    docs.visit_file(&source.file);
    let mut wrong = Vec::new();
    for item in docs.0 {
        let mut last: Option<(usize, String)> = None;
        for (line, heading) in headings(&item) {
            let rank = HEADINGS.iter().position(|h| *h == heading);
            match (rank, &last) {
                (None, _) => wrong.push(WrongHeading { line, heading, before: None }),
                (Some(rank), Some((other, before))) if rank < *other => {
                    wrong.push(WrongHeading { line, heading, before: Some(before.clone()) });
                }
                (Some(rank), _) => last = Some((rank, heading)),
            }
        }
    }
    wrong
}

/// `# Heading` lines of an item's docs, outside of its code blocks.
fn headings(docs: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, text) in docs {
        let text = text.trim();
        if text.starts_with("```") {
            in_code = !in_code;
        } else if let Some(heading) = heading_of(text).filter(|_| !in_code) {
            found.push((*line, heading.trim().to_owned()));
        }
    }
    found
}

/// The heading with its further signs, which no heading of ours has.
fn heading_of(text: &str) -> Option<&str> {
    let bare = text.trim_start_matches('#');
    (bare.len() < text.len() && bare.starts_with(' ')).then(|| text[1..].trim_start())
}

/// The doc lines of every item; the docs of modules speak freely.
#[derive(Default)]
struct Docs(Vec<Vec<(usize, String)>>);

impl Docs {
    fn take(&mut self, attributes: &[syn::Attribute]) {
        let lines = attributes.iter().filter(|a| matches!(a.style, syn::AttrStyle::Outer));
        self.0.push(lines.flat_map(doc_lines).collect());
    }
}

fn doc_lines(attribute: &syn::Attribute) -> Vec<(usize, String)> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return Vec::new() };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return Vec::new();
    };
    if !pair.path.is_ident("doc") {
        return Vec::new();
    }
    let start = attribute.span().start().line;
    text.value().lines().enumerate().map(|(i, l)| (start + i, l.to_owned())).collect()
}

impl<'ast> Visit<'ast> for Docs {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.take(crate::rust_source::attributes_of(item));
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.take(&item.attrs);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.take(&item.attrs);
        syn::visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const PATH: &str = "crates/core/src/lease.rs";

    #[test]
    fn the_headings_of_style_are_accepted() {
        let good = "//! # Any heading\n/// Waits.\n///\n/// # Errors\n/// # Cancel safety\n\
            /// # Examples\n/// ```\n/// # hidden();\n/// ```\nfn f() {}\n";
        assert_eq!(found(findings, &[(PATH, good)]), []);
    }

    #[test]
    fn other_headings_are_found() {
        let bad = "impl A {\n    /// Waits.\n    /// # Error\n    fn f() {}\n}\n";
        assert_eq!(found(findings, &[(PATH, bad)]), [(PATH.to_owned(), Some(3))]);
        let deeper = "/// Waits.\n///\n/// ## Errors\nfn f() {}\n";
        assert_eq!(found(findings, &[(PATH, deeper)]), [(PATH.to_owned(), Some(3))]);
    }

    #[test]
    fn another_order_is_found() {
        let bad = "/// Waits.\n/// # Examples\n/// # Errors\nfn f() {}\n";
        assert_eq!(found(findings, &[(PATH, bad)]), [(PATH.to_owned(), Some(3))]);
    }
}
