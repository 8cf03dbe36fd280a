//! The engine contract and option structs stay small.
//!
//! A default body in the contract would let a layer forget to forward a method; one method
//! or field too many is where a new idea hides in an old name.

use super::Finding;
use crate::tree::{SourceFile, Tree};
use syn::spanned::Spanned;
use syn::visit::Visit;

const CORE: &str = "crates/core/src/";
const METHODS: usize = 13;
const FIELDS: usize = 8;

pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut contracts = 0;
    for (file, source) in tree.rust().filter(|(file, _)| file.path.starts_with("crates/")) {
        let mut shapes = Shapes { file, found: Vec::new(), has_contract: false };
        shapes.visit_file(&source.file);
        contracts += usize::from(shapes.has_contract);
        found.extend(shapes.found);
    }
    if contracts != 1 {
        let says = format!("{contracts} traits `Engine`, so that the contract was not looked at");
        found.push(Finding::whole(CORE, says));
    }
    found
}

struct Shapes<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
    has_contract: bool,
}

impl Shapes<'_> {
    fn report(&mut self, place: proc_macro2::Span, says: String) {
        self.found.push(Finding::at(&self.file.path, place.start().line, says));
    }
}

impl<'ast> Visit<'ast> for Shapes<'_> {
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if item.ident != "Engine" || !self.file.path.starts_with(CORE) {
            return;
        }
        self.has_contract = true;
        let methods = item.items.iter().filter_map(|i| match i {
            syn::TraitItem::Fn(method) => Some(method),
            _ => None,
        });
        let count = methods.clone().count();
        if count > METHODS {
            self.report(
                item.ident.span(),
                format!("the contract has {count} of {METHODS} methods"),
            );
        }
        for method in methods.filter(|m| m.default.is_some()) {
            let says = format!("`{}` of the contract has a default body", method.sig.ident);
            self.report(method.sig.span(), says);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        if name.ends_with("Options") && item.fields.len() > FIELDS {
            let says = format!("`{name}` has {} of {FIELDS} fields", item.fields.len());
            self.report(item.ident.span(), says);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    const ENGINE: &str = "crates/core/src/engine.rs";

    #[test]
    fn thirteen_methods_and_eight_fields_are_accepted() {
        let methods: String = (0..13).map(|n| format!("fn m{n}(&self);")).collect();
        let fields: String = (0..8).map(|n| format!("f{n}: u8,")).collect();
        let good = format!("trait Engine {{ {methods} }} struct LockOptions {{ {fields} }}");
        assert_eq!(found(findings, &[(ENGINE, &good)]), []);
    }

    #[test]
    fn one_more_is_found() {
        let methods: String = (0..14).map(|n| format!("fn m{n}(&self);")).collect();
        let fields: String = (0..9).map(|n| format!("f{n}: u8,")).collect();
        let bad = format!("trait Engine {{ {methods} }}\nstruct LockOptions {{ {fields} }}");
        let lines: Vec<_> = found(findings, &[(ENGINE, &bad)]).into_iter().map(|f| f.1).collect();
        assert_eq!(lines, [Some(1), Some(2)]);
    }

    /// A contract by another name was not looked at, and all was well.
    #[test]
    fn a_contract_that_is_gone_is_found() {
        let bad = "trait Store { fn a(&self) {} }";
        assert_eq!(found(findings, &[(ENGINE, bad)]), [(CORE.to_owned(), None)]);
    }

    #[test]
    fn a_default_body_is_found() {
        let bad = "trait Engine {\n    fn a(&self);\n    fn b(&self) {}\n}";
        assert_eq!(found(findings, &[(ENGINE, bad)]), [(ENGINE.to_owned(), Some(3))]);
    }
}
