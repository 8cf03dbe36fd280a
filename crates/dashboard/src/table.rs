//! Tables: each in a region of its own that scrolls, with a name and an id for the live update.

use maud::{Markup, html};

/// The head of a column.
#[derive(Clone, Copy)]
pub(crate) enum Head {
    /// Of texts.
    Column(&'static str),
    /// Of figures, which stand on the right.
    Figures(&'static str),
    /// Bars beside the figures of the column before.
    Bars,
}

/// Makes a table of its heads and rows.
pub(crate) fn table(id: &str, label: &str, heads: &[Head], rows: &Markup) -> Markup {
    html! {
        div.scroll #(id) tabindex="0" role="region" aria-label=(label) {
            table {
                thead {
                    tr {
                        @for head in heads {
                            @match head {
                                Head::Column(title) => th scope="col" { (title) },
                                Head::Figures(title) => th.number scope="col" { (title) },
                                Head::Bars => td {},
                            }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}
