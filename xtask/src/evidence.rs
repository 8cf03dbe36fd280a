//! The evidence for the guarantees: one source file, and the tables that are made of it.
//!
//! A page has `<!-- evidence: STORE -->` and `<!-- end of evidence -->`. Between the two stand the
//! tables of that store, and nothing else. The head of [`SOURCE`] describes its format.
//!
//! Read next: the rule `guarantees` in [`crate::tidy`].

use crate::tree::{SourceFile, Tree};
use std::collections::BTreeSet;

pub(crate) const SOURCE: &str = "docs/guarantees/evidence.txt";
/// The most characters of a cell.
pub(crate) const CELL: usize = 120;
const BEGIN: &str = "<!-- evidence: ";
const END: &str = "<!-- end of evidence -->";

struct Row<'a> {
    fault: &'a str,
    expect: &'a str,
    /// The store, and what shows it there.
    shown: Vec<(&'a str, &'a str)>,
}

#[derive(Default)]
pub(crate) struct Evidence<'a> {
    sections: Vec<(&'a str, Vec<Row<'a>>)>,
}

impl<'a> Evidence<'a> {
    /// Reads the source file.
    ///
    /// # Errors
    /// The number of a line, from one, and what is wrong there.
    pub(crate) fn parse(text: &'a str) -> Result<Self, (usize, String)> {
        let mut evidence = Self::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |says: &str| (index + 1, says.to_owned());
            let rows = evidence.sections.last_mut().map(|(_, rows)| rows);
            if line.is_empty() || line.starts_with('#') {
                continue;
            } else if let Some(title) = line.strip_prefix("= ") {
                evidence.sections.push((title, Vec::new()));
            } else if let Some(row) = line.strip_prefix("- ") {
                let rows = rows.ok_or_else(|| wrong("a fault before the first title"))?;
                let cells = row.split_once(" | ").filter(|(_, expect)| !expect.contains('|'));
                let (fault, expect) = cells.ok_or_else(|| wrong("not `- fault | expect`"))?;
                rows.push(Row { fault, expect, shown: Vec::new() });
            } else {
                let cell = line.strip_prefix("  ").and_then(|l| l.split_once(": "));
                let cell = cell.filter(|(store, cell)| {
                    store.chars().all(|c| c.is_ascii_lowercase()) && !cell.contains('|')
                });
                let cell = cell.ok_or_else(|| wrong("not `  store: what shows it`"))?;
                let row = rows.and_then(|rows| rows.last_mut());
                row.ok_or_else(|| wrong("evidence for no fault"))?.shown.push(cell);
            }
        }
        Ok(evidence)
    }

    /// The stores that have evidence.
    pub(crate) fn stores(&self) -> BTreeSet<&'a str> {
        let rows = self.sections.iter().flat_map(|(_, rows)| rows);
        rows.flat_map(|row| &row.shown).map(|(store, _)| *store).collect()
    }

    /// The page, with its tables made anew.
    pub(crate) fn filled(&self, page: &str) -> String {
        let mut filled = String::new();
        let mut inside = false;
        for line in page.lines() {
            inside &= line != END;
            if !inside {
                filled += &format!("{line}\n");
            }
            if let Some(store) = store_of(line) {
                filled += &self.tables(store);
                inside = true;
            }
        }
        filled
    }

    fn tables(&self, store: &str) -> String {
        let mut tables = String::new();
        for (title, rows) in &self.sections {
            let cell = |row: &Row<'a>| {
                let shown = row.shown.iter().find(|(of, _)| *of == store);
                shown.map(|(_, cell)| format!("| {} | {} | {cell} |\n", row.fault, row.expect))
            };
            let rows: String = rows.iter().filter_map(cell).collect();
            if !rows.is_empty() {
                let head = "| fault | what must happen | shown by |\n|---|---|---|\n";
                tables += &format!("\n### {title}\n\n{head}{rows}");
            }
        }
        tables + "\n"
    }
}

/// The store whose tables follow this line.
pub(crate) fn store_of(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(" -->")
}

/// The pages that tables may stand in.
pub(crate) fn pages(tree: &Tree) -> impl Iterator<Item = &SourceFile> {
    let ours = |path: &str| path == "docs/guarantees.md" || path.starts_with("docs/guarantees/");
    tree.markdown().filter(move |page| ours(&page.path))
}

/// Writes the tables into the pages.
///
/// # Errors
/// The tree could not be read, the source is wrong, or a page could not be written.
pub(crate) fn write() -> Result<bool, String> {
    let tree = Tree::read()?;
    let source = tree.file(SOURCE).ok_or_else(|| format!("{SOURCE} is missing"))?;
    let parsed = Evidence::parse(&source.text);
    let evidence = parsed.map_err(|(line, says)| format!("{SOURCE}:{line}: {says}"))?;
    for page in pages(&tree) {
        let filled = evidence.filled(&page.text);
        if filled != page.text {
            let path = crate::cargo::root().join(&page.path);
            std::fs::write(path, filled).map_err(|e| format!("{}: {e}", page.path))?;
            println!("{}", page.path);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "# what it is\n\n= Clocks\n- one is stepped | nothing\n  etcd: `a::b`\n\
        - one stops | an error\n  local: none\n  etcd: `a::c`\n";

    #[test]
    fn a_page_has_the_tables_of_its_store_between_the_marks() {
        let page = "# etcd\n<!-- evidence: etcd -->\nold\n<!-- end of evidence -->\nend\n";
        let table = "\n### Clocks\n\n| fault | what must happen | shown by |\n|---|---|---|\n\
            | one is stepped | nothing | `a::b` |\n| one stops | an error | `a::c` |\n\n";
        let evidence = Evidence::parse(SOURCE).expect("the source is right");
        let filled = page.replace("old\n", table);
        assert_eq!(evidence.filled(page), filled);
        assert_eq!(evidence.filled(&filled), filled);
        assert_eq!(evidence.filled("# a\n"), "# a\n");
        assert_eq!(evidence.stores(), BTreeSet::from(["etcd", "local"]));
    }

    #[test]
    fn a_line_of_another_form_is_found() {
        let bad = ["- a | b", "= A\n- a b", "= A\n- a | b | c", "= A\n  etcd: x", "= A\netcd: x"];
        for bad in bad.into_iter().chain(["= A\n- a | b\n  etcd x", "= A\n- a | b\n  etcd: a | b"])
        {
            let line = bad.lines().count();
            assert_eq!(Evidence::parse(bad).err().map(|(line, _)| line), Some(line), "{bad}");
        }
    }
}
