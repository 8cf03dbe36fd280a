//! Tables: each in a region of its own that scrolls, with a name and an id for the live update.

use maud::{Markup, html};

pub(crate) use Head::{Bars, Column, Figures};

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
                                Column(title) => th scope="col" { (title) },
                                Figures(title) => th.number scope="col" { (title) },
                                Bars => td {},
                            }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}
