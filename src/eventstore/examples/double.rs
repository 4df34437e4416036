//! Serves the double of the tests until its input ends, and prints its address: to try commands on it.

#[path = "../tests/double/mod.rs"]
mod double;

use std::io::{Read as _, Write as _};

fn main() -> std::io::Result<()> {
    let double = double::Double::new();
    writeln!(std::io::stdout(), "{}", double.address(0, "double"))?;
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
