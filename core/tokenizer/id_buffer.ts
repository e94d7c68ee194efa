/**
 * A growing list of token ids.
 * @module
 */
export class IdBuffer {
  private data = new Int32Array(256);
  length = 0;

  push(id: number): void {
    if (this.length === this.data.length) {
      const grown = new Int32Array(this.data.length * 2);
      grown.set(this.data);
      this.data = grown;
    }
    this.data[this.length++] = id;
  }

  /** Appends `ids[from..to)`. */
  pushRange(ids: Int32Array, from: number, to: number): void {
    for (let i = from; i < to; i++) this.push(ids[i]);
  }

  at(index: number): number {
    return this.data[index];
  }

  /** The ids, copied. */
  take(): Int32Array {
    return this.data.slice(0, this.length);
  }
}
