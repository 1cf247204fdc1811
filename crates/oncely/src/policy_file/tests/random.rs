//! No input makes the reader panic, and every problem points into the file. The seed is printed on failure.

use super::super::PolicyFile;

/// A small generator (xorshift64*): enough to vary inputs, and the same on every machine for a given seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed).unwrap() % below
    }
}

/// Runs a case with a seed of its own, so that a failure can be repeated by that seed alone.
fn with_seeds(cases: u64, mut case: impl FnMut(&mut Dice)) {
    let first = getrandom::u64().unwrap();
    for seed in (0..cases).map(|i| first.wrapping_add(i) | 1 << 63) {
        let run = std::panic::AssertUnwindSafe(|| case(&mut Dice(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            println!("failing seed: {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn check(text: &str) {
    let Err(error) = PolicyFile::parse(text, "p.toml") else { return };
    let lines = text.split('\n').count();
    assert!(!error.problems.is_empty());
    assert!(error.problems.iter().all(|p| p.line <= lines && !p.message.is_empty()), "{error}");
    assert!(error.problems.iter().all(|p| !p.message.contains('\n')), "{error}");
    let places: Vec<(usize, usize)> = error.problems.iter().map(|p| (p.line, p.column)).collect();
    assert!(places.is_sorted(), "{error}");
}

#[test]
fn random_bytes_never_panic() {
    with_seeds(2_000, |dice| {
        let len = dice.roll(200);
        let bytes: Vec<u8> = (0..len).map(|_| u8::try_from(dice.roll(256)).unwrap()).collect();
        check(&String::from_utf8_lossy(&bytes));
    });
}

#[test]
fn pieces_of_the_format_in_any_order_never_panic() {
    const PIECES: [&str; 40] = [
        "[",
        "]",
        "[[",
        "tool",
        ".",
        "\"",
        "'",
        "x*",
        "*",
        "=",
        "\n",
        "\r\n",
        " ",
        ",",
        "{",
        "}",
        "#",
        "defaults",
        "wait_for",
        "check",
        "cost",
        "amount",
        "unit",
        "rejected_on",
        "-1",
        "0x_f",
        "1e400",
        "99999999999999999999",
        "\"30s\"",
        "nan",
        "inf",
        "true",
        "1979-05-27",
        "\"\"\"",
        "\\u0000",
        "ß",
        "\u{feff}",
        "key",
        "store",
        "strict",
    ];
    with_seeds(5_000, |dice| {
        let count = dice.roll(40);
        check(&(0..count).map(|_| PIECES[dice.roll(PIECES.len())]).collect::<String>());
    });
}

#[test]
fn a_good_file_with_bytes_changed_put_in_or_taken_out_never_panics() {
    with_seeds(2_000, |dice| {
        let mut bytes = super::FULL.as_bytes().to_vec();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len());
            let byte = u8::try_from(dice.roll(256)).unwrap();
            match dice.roll(4) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.swap(at, 0),
            }
        }
        check(&String::from_utf8_lossy(&bytes));
    });
}

#[test]
fn deep_nesting_and_long_lines_never_panic() {
    for open in ["[", "{a=", "a."] {
        check(&format!("[tool.x]\nkey = {}", open.repeat(50_000)));
        check(&open.repeat(50_000));
    }
    check(&format!("[tool.\"{}\"]", "*".repeat(100_000)));
    check(&format!("{} = 1", "k".repeat(100_000)));
}
