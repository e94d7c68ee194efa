/**
 * A binary min-heap of pairs of neighbouring symbols, for merging long words and lines: smallest key first, then
 * smallest `left`. What `left` and `right` mean is the user's.
 * @module
 */
export class PairHeap {
  private keys: Float64Array;
  private lefts: Int32Array;
  private rights: Int32Array;
  private size = 0;
  /** The entry that `pop` took. */
  key = 0;
  left = 0;
  right = 0;

  constructor(capacity: number) {
    const n = Math.max(capacity, 16);
    this.keys = new Float64Array(n);
    this.lefts = new Int32Array(n);
    this.rights = new Int32Array(n);
  }

  push(key: number, left: number, right: number): void {
    if (this.size === this.keys.length) this.grow();
    const { keys, lefts, rights } = this;
    let at = this.size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (keys[parent] < key || (keys[parent] === key && lefts[parent] <= left)) break;
      keys[at] = keys[parent];
      lefts[at] = lefts[parent];
      rights[at] = rights[parent];
      at = parent;
    }
    keys[at] = key;
    lefts[at] = left;
    rights[at] = right;
  }

  /** Takes the entry of the smallest key into `key`, `left` and `right`; false when there is none. */
  pop(): boolean {
    if (this.size === 0) return false;
    const { keys, lefts, rights } = this;
    this.key = keys[0];
    this.left = lefts[0];
    this.right = rights[0];
    const size = --this.size;
    const key = keys[size];
    const left = lefts[size];
    const right = rights[size];
    let at = 0;
    for (let child = 1; child < size; child = 2 * at + 1) {
      const sibling = child + 1;
      if (
        sibling < size &&
        (keys[sibling] < keys[child] || (keys[sibling] === keys[child] && lefts[sibling] < lefts[child]))
      ) child = sibling;
      if (keys[child] > key || (keys[child] === key && lefts[child] >= left)) break;
      keys[at] = keys[child];
      lefts[at] = lefts[child];
      rights[at] = rights[child];
      at = child;
    }
    keys[at] = key;
    lefts[at] = left;
    rights[at] = right;
    return true;
  }

  private grow(): void {
    const { keys, lefts, rights } = this;
    this.keys = new Float64Array(keys.length * 2);
    this.lefts = new Int32Array(keys.length * 2);
    this.rights = new Int32Array(keys.length * 2);
    this.keys.set(keys);
    this.lefts.set(lefts);
    this.rights.set(rights);
  }
}
