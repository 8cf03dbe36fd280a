//! The kind of program that a file is, by its first bytes.
//!
//! The kernel decides what it runs; this module only explains its errors. The kernel returns ENOENT
//! for an absent file, and also for a script whose interpreter is absent. It returns ENOEXEC for a
//! file in an unknown format, and `execvp` (and so [`super::shim`]) then runs it with `/bin/sh`.
//! That is right for a script without a first line `#!`, and wrong for a binary.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

const HEAD: usize = 128;
const ELF: &[u8] = b"\x7fELF";
/// Class and byte order, then the machine.
const ELF_KIND: [std::ops::Range<usize>; 2] = [4..6, 18..20];

/// Returns whether nothing can run the file: it is a binary in no format that is registered here.
///
/// `false` means that the kernel decides.
pub(super) fn is_not_executable_here(path: &Path) -> bool {
    let Some(head) = head_of(path) else { return false };
    let foreign = if head.starts_with(ELF) {
        head_of(Path::new("/proc/self/exe")).is_some_and(|own| !is_compatible(&head, &own))
    } else {
        !head.starts_with(b"#!") && !is_text(&head)
    };
    foreign && !formats_are_registered()
}

/// Returns whether a file without a format is a script for `/bin/sh`, by bash's test.
pub(super) fn is_shell_text(path: &Path) -> bool {
    head_of(path).is_some_and(|head| is_text(&head))
}

/// Names what is missing when the kernel "does not find" an existing file.
pub(super) fn missing_interpreter(path: &Path) -> String {
    let head = head_of(path).unwrap_or_default();
    let named = head.strip_prefix(b"#!").and_then(|rest| {
        rest.split(|byte| *byte == b'\n').next()?.trim_ascii().split(u8::is_ascii_whitespace).next()
    });
    match named {
        Some(name) => format!("its interpreter \"{}\" is missing", name.escape_ascii()),
        None => "its loader is missing".to_owned(),
    }
}

fn head_of(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    let most = u64::try_from(HEAD).unwrap_or(u64::MAX);
    File::open(path).ok()?.take(most).read_to_end(&mut head).ok()?;
    Some(head)
}

/// No zero byte in the first line.
fn is_text(head: &[u8]) -> bool {
    !head.split(|byte| *byte == b'\n').next().unwrap_or_default().contains(&0)
}

/// Whether an ELF file is for the machine of another ELF file, or for its 32-bit variant.
fn is_compatible(head: &[u8], own: &[u8]) -> bool {
    const COMPATIBLE_32_BIT: [(u16, u16); 2] = [(0x3e, 0x03), (0xb7, 0x28)];
    let same = ELF_KIND.iter().all(|range| head.get(range.clone()) == own.get(range.clone()));
    let machine = |bytes: &[u8]| {
        bytes.get(ELF_KIND[1].clone()).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes)
    };
    same || machine(own).zip(machine(head)).is_some_and(|pair| COMPATIBLE_32_BIT.contains(&pair))
}

/// Whether anything is registered with `binfmt_misc`, such as an emulator.
fn formats_are_registered() -> bool {
    std::fs::read_dir("/proc/sys/fs/binfmt_misc").is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                !matches!(entry.file_name().to_str(), Some("register" | "status"))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, machine: u16) -> Vec<u8> {
        let mut head = ELF.to_vec();
        head.resize(64, 0);
        head[4] = class;
        head[5] = 1;
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head
    }

    #[test]
    fn text_has_no_zero_byte_in_its_first_line() {
        for (head, text) in [
            (&b""[..], true),
            (b"echo hello\n", true),
            (b"echo\n\0\0\0", true),
            (b"MZ\0\x90", false),
            (b"\x7fELF\x02\x01\0", false),
        ] {
            assert_eq!(is_text(head), text, "{head:?}");
        }
    }

    #[test]
    fn machines_run_their_own_and_their_32_bit_programs() {
        let x86_64 = elf(2, 0x3e);
        let i386 = elf(1, 3);
        let arm64 = elf(2, 0xb7);
        let arm = elf(1, 0x28);
        for (program, machine, runs) in [
            (&x86_64, &x86_64, true),
            (&i386, &x86_64, true),
            (&x86_64, &i386, false),
            (&arm64, &x86_64, false),
            (&arm, &arm64, true),
            (&arm, &x86_64, false),
        ] {
            assert_eq!(is_compatible(program, machine), runs);
        }
    }

    #[test]
    fn our_own_program_is_executable() {
        assert!(!is_not_executable_here(Path::new("/proc/self/exe")));
        assert!(!is_not_executable_here(Path::new("/no/such/file")));
    }
}
