// The worker: verifies, so that the page stays usable.

import { verify } from "./claims.js";

/** A file as a source of an archive. */
class FileSource {
  constructor(file) {
    this.file = file;
    this.size = file.size;
    this.reader = new FileReaderSync();
  }

  read(begin, length) {
    return new Uint8Array(this.reader.readAsArrayBuffer(this.file.slice(begin, begin + length)));
  }
}

export function startWorker() {
  let reported = 0;
  const progress = (what, count) => {
    if (Date.now() - reported < 200) return;
    reported = Date.now();
    postMessage({ progress: `${what}: ${count}` });
  };
  onmessage = async ({ data: { file, held, key } }) => {
    try {
      postMessage({ report: await verify(new FileSource(file), { held, key }, progress) });
    } catch (error) {
      postMessage({ error: error.message });
    }
  };
}
