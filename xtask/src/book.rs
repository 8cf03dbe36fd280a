//! The books: the pages of `docs` as HTML with a search, made by mdBook.
//!
//! There are two, with contents and a search of their own: one for users, and one for contributors,
//! which is built into `contributing/` of the first.
//!
//! Pages link to each other, and to files of the repository, by relative paths, so that they can be
//! read where the code is. A book has the same directories: each page and each file that a page
//! links to is copied to its own path. Only a link to a page of the other book is rewritten.

use crate::cargo::root;
use crate::interop;
use crate::markdown::{prose, resolved, targets};
use crate::metadata::Metadata;
use crate::process;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A table of contents, and what becomes of it.
pub(crate) struct Book {
    pub(crate) summary: &'static str,
    title: &'static str,
    /// Its directory in the HTML, with a slash at the end.
    directory: &'static str,
}

pub(crate) const BOOKS: [Book; 2] = [
    Book { summary: "docs/SUMMARY.md", title: "Holdline", directory: "" },
    Book {
        summary: "docs/contributing/SUMMARY.md",
        title: "Holdline: for contributors",
        directory: "contributing/",
    },
];
/// It takes two seconds, most of it for the search.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// The page for what a server does not find links to the root of the site.
const NOT_FOUND: &str = "404.html";
/// What mdBook makes of a table of contents.
const CONTENTS: &str = "toc.html";

/// Makes the books, checks their links, and returns where the first page for users is.
///
/// # Errors
/// mdBook is not available, a page is missing, or a link leads nowhere.
pub(crate) fn build() -> Result<PathBuf, String> {
    let mdbook = interop::mdbook()?;
    let place = Metadata::read()?.target_directory.join("book");
    match std::fs::remove_dir_all(&place) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {why}", place.display()));
        }
        _ => {}
    }
    let html = place.join("html");
    for (index, book) in BOOKS.iter().enumerate() {
        let staged = place.join(format!("staged-{index}"));
        let other = &BOOKS[1 - index];
        stage(book, other, &staged)?;
        // It looks for the style sheet in the working directory.
        let mut command = Command::new(&mdbook);
        command.arg("build").current_dir(&staged);
        command.arg("--dest-dir").arg(html.join(book.directory));
        command.env("MDBOOK_BOOK__TITLE", book.title);
        process::watch(&mut command, LIMIT, |_| ())?;
    }
    let dead = dead_links(&read_pages(&html, Path::new(""))?, &|path| html.join(path).exists());
    if dead.is_empty() { Ok(html.join("index.html")) } else { Err(dead.join("\n")) }
}

/// Copies the pages of a book, and what they link to, into a directory.
fn stage(book: &Book, other: &Book, place: &Path) -> Result<(), String> {
    let source = place.join("src");
    let summary = read(&root().join(book.summary))?;
    let pages = pages_of(book.summary, &summary);
    let pages_of_other = pages_of(other.summary, &read(&root().join(other.summary))?);
    let mut files = BTreeSet::new();
    for page in &pages {
        let text = read(&root().join(page))?;
        files.extend(linked_files(page, &text));
        let across = Across { book, other, pages: &pages_of_other };
        write(&source.join(page), &across.rewritten(page, &text))?;
    }
    let is_page = |path: &String| pages.contains(path) || pages_of_other.contains(path);
    for file in files.iter().filter(|path| !is_page(path) && root().join(path).is_file()) {
        copy(&root().join(file), &source.join(file))?;
    }
    write(&source.join("SUMMARY.md"), &from_root(book.summary, &summary))?;
    ["book.toml", "book.css"]
        .into_iter()
        .try_for_each(|name| copy(&root().join("docs").join(name), &place.join(name)))
}

/// The pages in the order of the book, as paths from the root.
pub(crate) fn pages_of(summary: &str, text: &str) -> Vec<String> {
    linked_files(summary, text)
}

/// What links from one book to the other need.
struct Across<'a> {
    book: &'a Book,
    other: &'a Book,
    /// Those of the other book.
    pages: &'a [String],
}

impl Across<'_> {
    /// The page with its links to pages of the other book, and to contents, leading to HTML.
    fn rewritten(&self, page: &str, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (number, line) in prose(text) {
            for target in targets(line) {
                if let Some(path) = self.path(page, target) {
                    let line = &mut lines[number - 1];
                    *line = line.replace(&format!("]({target})"), &format!("]({path})"));
                    *line = line.replace(&format!("]: {target}"), &format!("]: {path}"));
                }
            }
        }
        lines.join("\n") + "\n"
    }

    fn path(&self, page: &str, target: &str) -> Option<String> {
        let (path, part) = match target.split_once('#') {
            Some((path, part)) => (path, format!("#{part}")),
            None => (target, String::new()),
        };
        let linked = resolved(directory_of(page), path)?;
        let depth = format!("{}{page}", self.book.directory).matches('/').count();
        let root = "../".repeat(depth);
        if let Some(book) = BOOKS.iter().find(|book| book.summary == linked) {
            return Some(format!("{root}{}{CONTENTS}", book.directory));
        }
        if !self.pages.contains(&linked) {
            return None;
        }
        let html = linked.strip_suffix(".md")?;
        Some(format!("{root}{}{html}.html{part}", self.other.directory))
    }
}

fn directory_of(page: &str) -> &str {
    page.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn linked_files(page: &str, text: &str) -> Vec<String> {
    let directory = directory_of(page);
    let path = |target: &str| {
        let path = target.split_once('#').map_or(target, |(path, _)| path);
        if path.is_empty() { None } else { resolved(directory, path) }
    };
    prose(text).into_iter().flat_map(|(_, line)| targets(line).filter_map(path)).collect()
}

/// The summary with its links counted from the root.
fn from_root(summary: &str, text: &str) -> String {
    let directory = directory_of(summary);
    let line = |line: &str| match line.split_once("](") {
        Some((title, rest)) => {
            let target = rest.trim_end().trim_end_matches(')');
            format!("{title}]({})", resolved(directory, target).unwrap_or_default())
        }
        None => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// What the check needs of a page: where its links lead, and which parts it has.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    parts: BTreeSet<String>,
}

impl Page {
    fn of(html: &str) -> Page {
        let values = |attribute: &str| -> Vec<String> {
            let found = html.split(attribute).skip(1).filter_map(|rest| rest.split_once('"'));
            found.map(|(value, _)| value.replace("&amp;", "&")).collect()
        };
        let links = [values(" href=\""), values(" src=\"")].concat();
        Page { links, parts: values(" id=\"").into_iter().collect() }
    }
}

fn read_pages(html: &Path, below: &Path) -> Result<HashMap<String, Page>, String> {
    let mut pages = HashMap::new();
    let directory = html.join(below);
    let entries = std::fs::read_dir(&directory);
    for entry in entries.map_err(|why| format!("{}: {why}", directory.display()))? {
        let name = below.join(entry.map_err(|why| why.to_string())?.file_name());
        let path = html.join(&name);
        if path.is_dir() {
            pages.extend(read_pages(html, &name)?);
        } else if path.extension().is_some_and(|end| end == "html") {
            pages.insert(name.to_string_lossy().into_owned(), Page::of(&read(&path)?));
        }
    }
    Ok(pages)
}

/// Every link of a page that leads to no file, or to no part of its page.
fn dead_links(pages: &HashMap<String, Page>, is_there: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut dead = Vec::new();
    for (name, page) in pages.iter().filter(|(name, _)| !name.ends_with(NOT_FOUND)) {
        let directory = directory_of(name);
        for link in page.links.iter().filter(|link| !link.contains(':')) {
            let (path, part) = link.split_once('#').unwrap_or((link, ""));
            let path = match path {
                "" => Some(name.clone()),
                path => resolved(directory, path),
            };
            let lives = path.is_some_and(|path| match pages.get(&path) {
                Some(page) => part.is_empty() || page.parts.contains(part),
                None => is_there(&path),
            });
            if !lives {
                dead.push(format!("{name}: the link `{link}` leads nowhere"));
            }
        }
    }
    dead.sort();
    dead.dedup();
    dead
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| std::fs::write(path, text));
    written.map_err(|why| format!("{}: {why}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all);
    let copied = copied.and_then(|()| std::fs::copy(from, to).map(|_| ()));
    copied.map_err(|why| format!("{}: {why}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "# Summary\n\n[A](../README.md)\n\n- [B](b.md)\n  - [C](c/d.md)\n";

    #[test]
    fn pages_are_found_in_order_and_counted_from_the_root() {
        let summary = BOOKS[0].summary;
        assert_eq!(pages_of(summary, SUMMARY), ["README.md", "docs/b.md", "docs/c/d.md"]);
        let staged = from_root(summary, SUMMARY);
        assert!(staged.contains("[A](README.md)\n"), "{staged}");
        assert!(staged.contains("\n  - [C](docs/c/d.md)\n"), "{staged}");
    }

    #[test]
    fn a_link_to_the_other_book_leads_to_its_html() {
        let pages = ["docs/a.md".to_owned(), "B.md".to_owned()];
        let [users, contributors] = &BOOKS;
        let to_contributors = Across { book: users, other: contributors, pages: &pages };
        let to_users = Across { book: contributors, other: users, pages: &pages };
        let text = "[a](../a.md#x) [c](c.md)\n```text\n[a](../a.md)\n```\n[b]: ../../B.md\n";
        let of = |a: &str, b: &str| {
            format!("[a]({a}) [c](c.md)\n```text\n[a](../a.md)\n```\n[b]: {b}\n")
        };
        assert_eq!(
            to_contributors.rewritten("docs/d/e.md", text),
            of("../../contributing/docs/a.html#x", "../../contributing/B.html")
        );
        assert_eq!(
            to_users.rewritten("docs/d/e.md", text),
            of("../../../docs/a.html#x", "../../../B.html")
        );
        let contents = to_users.rewritten("README.md", "[book](docs/SUMMARY.md)");
        assert_eq!(contents, "[book](../toc.html)\n");
    }

    #[test]
    fn links_to_nothing_are_found() {
        let there = "<h1 id=\"one\"></h1><a href=\"b/two.html#x\">, <a href=\"#one\">";
        let other = "<p id=\"x\"><img src=\"../a.png\"><a href=\"https://example.org\">";
        let pages = |first: &str| {
            let files = [("index.html", first), ("b/two.html", other), (NOT_FOUND, "")];
            files.map(|(name, html)| (name.to_owned(), Page::of(html))).into()
        };
        let picture = |path: &str| path == "a.png";
        assert_eq!(dead_links(&pages(there), &picture), Vec::<String>::new());
        assert_eq!(dead_links(&pages(there), &|_| false).len(), 1);
        for dead in ["<a href=\"b/three.html\">", "<a href=\"b/two.html#y\">", "<a href=\"#y\">"] {
            assert_eq!(dead_links(&pages(dead), &picture).len(), 1, "{dead}");
        }
    }
}
