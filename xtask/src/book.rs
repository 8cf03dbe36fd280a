//! The book: the pages of `docs/SUMMARY.md` as HTML with a search, made by mdBook.
//!
//! Pages link to each other, and to files of the repository, by relative paths, so that they can be
//! read where the code is. The book has the same directories: each page and each file that a page
//! links to is copied to its own path below `target/book/src`, and no link is rewritten.

use crate::cargo::root;
use crate::interop;
use crate::markdown::{prose, resolved, targets};
use crate::metadata::Metadata;
use crate::process;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SUMMARY: &str = "docs/SUMMARY.md";
/// It takes two seconds, most of it for the search.
const LIMIT: Option<Duration> = Some(Duration::from_secs(120));
/// The page for what a server does not find links to the root of the site.
const NOT_FOUND: &str = "404.html";

/// Makes the book, checks its links, and returns where its first page is.
///
/// # Errors
/// mdBook is not available, a page is missing, or a link leads nowhere.
pub(crate) fn build() -> Result<PathBuf, String> {
    let mdbook = interop::mdbook()?;
    let place = Metadata::read()?.target_directory.join("book");
    stage(&place)?;
    // It looks for the style sheet in the working directory.
    process::watch(Command::new(mdbook).arg("build").current_dir(&place), LIMIT, |_| ())?;
    let html = place.join("html");
    let dead = dead_links(&read_pages(&html, Path::new(""))?, &|path| html.join(path).exists());
    match dead.is_empty() {
        true => Ok(html.join("index.html")),
        false => Err(dead.join("\n")),
    }
}

/// Copies the pages, and what they link to, into an empty directory.
fn stage(place: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(place) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {why}", place.display()));
        }
        _ => {}
    }
    let source = place.join("src");
    let summary = read(&root().join(SUMMARY))?;
    let pages = pages_of(&summary);
    let mut files: BTreeSet<String> = pages.iter().cloned().collect();
    for page in &pages {
        let text = read(&root().join(page))?;
        let linked = linked_files(page, &text);
        files.extend(linked.into_iter().filter(|path| root().join(path).is_file()));
    }
    for file in &files {
        copy(&root().join(file), &source.join(file))?;
    }
    write(&source.join("SUMMARY.md"), &from_root(&summary))?;
    ["book.toml", "book.css"]
        .into_iter()
        .try_for_each(|name| copy(&root().join("docs").join(name), &place.join(name)))
}

/// The pages in the order of the book, as paths from the root.
pub(crate) fn pages_of(summary: &str) -> Vec<String> {
    linked_files(SUMMARY, summary)
}

fn linked_files(page: &str, text: &str) -> Vec<String> {
    let directory = page.rsplit_once('/').map_or("", |(directory, _)| directory);
    let path = |target: &str| {
        let path = target.split_once('#').map_or(target, |(path, _)| path);
        if path.is_empty() { None } else { resolved(directory, path) }
    };
    prose(text).into_iter().flat_map(|(_, line)| targets(line).filter_map(path)).collect()
}

/// The summary with its links counted from the root.
fn from_root(summary: &str) -> String {
    let directory = SUMMARY.rsplit_once('/').map_or("", |(directory, _)| directory);
    let line = |line: &str| match line.split_once("](") {
        Some((title, rest)) => {
            let target = rest.trim_end().trim_end_matches(')');
            format!("{title}]({})", resolved(directory, target).unwrap_or_default())
        }
        None => line.to_owned(),
    };
    summary.lines().map(|text| line(text) + "\n").collect()
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
    for (name, page) in pages.iter().filter(|(name, _)| *name != NOT_FOUND) {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
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
    std::fs::write(path, text).map_err(|why| format!("{}: {why}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all);
    let copied = copied.and_then(|()| std::fs::copy(from, to).map(|_| ()));
    copied.map_err(|why| format!("{}: {why}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENTS: &str = "# Summary\n\n[A](../README.md)\n\n- [B](b.md)\n  - [C](c/d.md)\n";

    #[test]
    fn pages_are_found_in_order_and_counted_from_the_root() {
        assert_eq!(pages_of(CONTENTS), ["README.md", "docs/b.md", "docs/c/d.md"]);
        let staged = from_root(CONTENTS);
        assert!(staged.contains("[A](README.md)\n"), "{staged}");
        assert!(staged.contains("\n  - [C](docs/c/d.md)\n"), "{staged}");
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
