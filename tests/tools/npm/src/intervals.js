/** @typedef {[number, number]} Interval */

/**
 * The same ground in as few intervals as possible, sorted.
 * @param {Interval[]} intervals
 * @returns {Interval[]}
 */
export function merged(intervals) {
  const sorted = [...intervals].sort((a, b) => a[0] - b[0]);
  /** @type {Interval[]} */
  const found = [];
  for (const [start, end] of sorted) {
    const last = found.at(-1);
    if (last !== undefined && start <= last[1]) {
      last[1] = Math.max(last[1], end);
    } else {
      found.push([start, end]);
    }
  }
  return found;
}

/**
 * How much ground is covered.
 * @param {Interval[]} intervals
 * @returns {number}
 */
export function covered(intervals) {
  return merged(intervals).reduce((sum, [start, end]) => sum + end - start, 0);
}
