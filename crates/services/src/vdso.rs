//! The wall clock of a server in a test's hand.
//!
//! A Go program asks no library for the time, so a preloaded one has no effect: it calls the
//! page that the kernel maps into every process, the vDSO; so does the library that others ask.
//! While the process is stopped, the function there is overwritten with one that asks the
//! kernel and adds seconds to wall clocks. The page is the process's own from then on, and gone
//! with it. For x86-64.

use crate::Failure;
use crate::wait::{LIMIT, until};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const FUNCTION: &[u8] = b"__vdso_clock_gettime";
/// Asks the kernel; adds to the seconds if the clock is `CLOCK_REALTIME`, which is number 0. The
/// eight bytes behind it are what is added.
const CODE: [u8; 22] = [
    0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
    0x0f, 0x05, // syscall
    0x85, 0xff, // test edi, edi
    0x75, 0x0a, // jne to the end
    0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00, // mov rcx, [what is added]
    0x48, 0x01, 0x0e, // add [rsi], rcx
    0xc3, // ret
];
/// The kind of a section that holds the symbols that others may call.
const DYNAMIC_SYMBOLS: u64 = 11;

/// Lets the wall clock of a stopped process run this many seconds ahead of ours.
pub(crate) fn set_ahead(pid: u32, seconds: i64) -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::new("a server gets another clock on x86-64 only"));
    }
    let cannot = |why| Failure::because("the memory of a server cannot be reached", why);
    let page = page(pid).ok_or_else(|| Failure::new("the server has no vDSO"))?;
    let open = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = open.map_err(cannot)?;
    let length = usize::try_from(page.end - page.start).unwrap_or_default();
    let mut image = vec![0; length];
    memory.read_exact_at(&mut image, page.start).map_err(cannot)?;
    let function = find(&image).ok_or_else(|| Failure::new("the vDSO has no clock function"))?;
    let text = [&CODE[..], &seconds.to_ne_bytes()].concat();
    memory.write_all_at(&text, page.start + function).map_err(cannot)
}

/// Returns whether no thread of a stopped process is within the vDSO.
pub(crate) fn is_outside(pid: u32) -> bool {
    let Some(page) = page(pid) else { return false };
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let reply = std::fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        // The last field is where it will go on.
        let at = reply.split_whitespace().next_back().and_then(|at| at.strip_prefix("0x"));
        at.and_then(|at| u64::from_str_radix(at, 16).ok()).is_some_and(|at| !page.contains(&at))
    })
}

/// Stops a process by `stop` until it stands outside of the vDSO, each time letting it go on by
/// `cont` first.
pub(crate) fn pause_outside_of_vdso(
    pid: u32,
    stop: impl Fn(),
    cont: impl Fn(),
) -> Result<(), Failure> {
    let stood = until(LIMIT, || {
        stop();
        if is_outside(pid) {
            return Some(());
        }
        cont();
        None
    });
    stood.ok_or_else(|| Failure::new("the server never stands outside of the vDSO"))
}

fn page(pid: u32) -> Option<Range<u64>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
}

/// Where the function stands in the image, which is an ELF file of 64 bits.
fn find(image: &[u8]) -> Option<u64> {
    let number = |at: u64, bytes: usize| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(image.get(at..at + bytes)?);
        Some(u64::from_le_bytes(whole))
    };
    let sections = number(0x28, 8)?;
    let size = number(0x3a, 2)?;
    let count = number(0x3c, 2)?;
    let section = |place: u64| sections + place * size;
    let symbols = (0..count).map(section).find(|at| number(at + 4, 4) == Some(DYNAMIC_SYMBOLS))?;
    let from = number(symbols + 24, 8)?;
    let length = number(symbols + 32, 8)?;
    let names = number(section(number(symbols + 40, 4)?) + 24, 8)?;
    let is_it = |symbol: &u64| {
        let name = number(*symbol, 4).and_then(|name| usize::try_from(names + name).ok());
        name.and_then(|name| image.get(name..)).is_some_and(|text| {
            text.strip_prefix(FUNCTION).is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    let symbol = (0..length / 24).map(|place| from + place * 24).find(is_it)?;
    // It must be long enough to be written over.
    let is_long = number(symbol + 16, 8)? >= (CODE.len() + 8) as u64;
    if is_long { number(symbol + 8, 8) } else { None }
}
