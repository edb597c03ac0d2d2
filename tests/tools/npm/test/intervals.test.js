import { expect, test } from "vitest";
import { covered, merged } from "../src/intervals.js";

test("what overlaps becomes one", () => {
  expect(merged([[1, 3], [2, 5], [8, 9]])).toEqual([[1, 5], [8, 9]]);
});

test("one inside another adds nothing", () => {
  expect(merged([[1, 9], [2, 3]])).toEqual([[1, 9]]);
});

test("ground is counted once", () => {
  expect(covered([[1, 3], [2, 5]])).toBe(4);
});
