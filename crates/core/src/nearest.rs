//! The nearest spelling, for errors about unknown words.

/// Returns the known word that `typed` was probably meant to be: at most two slips away (an
/// added, missing, wrong or swapped letter each), and less than half of the word wrong.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = typed.chars().take(64).collect();
    let slips = known.into_iter().map(|word| (slips(&typed, word), word));
    let (least, word) = slips.min_by_key(|(slips, _)| *slips)?;
    (least <= 2 && 2 * least < word.chars().count()).then_some(word)
}

/// Counts the slips between two words: the optimal string alignment distance.
fn slips(typed: &[char], word: &str) -> usize {
    let word: Vec<char> = word.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=word.len()).collect();
    for (i, letter) in typed.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in word.iter().enumerate() {
            let mut least = (last[j] + usize::from(letter != wanted)).min(last[j + 1] + 1);
            least = least.min(row[j] + 1);
            if i > 0 && j > 0 && typed[i - 1] == *wanted && *letter == word[j - 1] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[word.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_other_words_are_not() {
        let known = ["dir", "max_waiters", "transaction_limit"];
        for (typed, meant) in [
            ("dri", Some("dir")),
            ("dirr", Some("dir")),
            ("max-waiters", Some("max_waiters")),
            ("maxwaiter", Some("max_waiters")),
            ("x", None),
            ("password", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
        assert_eq!(nearest("dir", []), None);
    }
}
