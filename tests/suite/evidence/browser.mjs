// Runs the verifier of verify.html without a browser. The text of its modules stands before this
// one, in one file.
import fs from "node:fs";

/** A file as a source of an archive; it refuses to be read in larger pieces than a bound. */
class TestSource {
  constructor(path) {
    this.file = fs.openSync(path);
    this.size = fs.fstatSync(this.file).size;
  }

  read(begin, length) {
    if (length > MAX_SHA256) throw new Error(`${length} bytes are read at once`);
    const bytes = new Uint8Array(length);
    return bytes.subarray(0, fs.readSync(this.file, bytes, 0, length, begin));
  }
}

const asked = process.argv.slice(2), archives = [], against = {};
const text = (path) => fs.readFileSync(path, "utf8");
const print = (value) => console.log(JSON.stringify(value));
const [what] = asked;
if (what === "hashes") {
  for (const length of asked.slice(1)) {
    print(blake3(Uint8Array.from({ length }, (_, at) => at % 251)));
  }
} else if (what === "json") {
  const exact = (value) => (typeof value === "bigint" ? `${value}n` : value);
  for (const one of JSON.parse(text(asked[1]))) {
    try {
      print({ read: exact(readJson(one)) });
    } catch (error) {
      print({ refused: error.message });
    }
  }
} else {
  for (let at = 0; at < asked.length; at += 1) {
    if (asked[at] === "--checkpoint") against.held = text(asked[at += 1]);
    else if (asked[at] === "--key") against.key = text(asked[at += 1]);
    else archives.push(asked[at]);
  }
  for (const file of archives) {
    try {
      print({ file, ...await verify(new TestSource(file), against) });
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      print({ file, error: error.message });
    }
  }
}
