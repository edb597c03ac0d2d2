export default [
  {
    files: ["src/**/*.js"],
    rules: { "no-unused-vars": "error", "prefer-const": "error", eqeqeq: "error" },
  },
];
