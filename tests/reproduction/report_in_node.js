// The script of a report beside stand-ins for its rows, tables and lists; prints what it shows.
"use strict";
const script = require("fs").readFileSync(0, "utf8").split("<script>")[1].split("</script>")[0];

const row = (verdict, figures) => ({ dataset: { verdict, figures }, hidden: false });
const rows = [row("fails", "fig2 fig5"), row("holds", "fig2"), row("undecided", "b1")];
const tables = rows.map((only) => ({
  hidden: false,
  previousElementSibling: { hidden: false },
  querySelector: () => (only.hidden ? null : only),
}));
const output = { textContent: "" };
let changed = () => {};
const form = {
  hidden: true,
  elements: { verdict: { value: "" }, figure: { value: "" } },
  querySelector: () => output,
  addEventListener: (name, listener) => { changed = listener; },
};
const known = { "tr[data-verdict]": rows, ".sentences": tables, "form.filter": [form], ".enlarge": [] };
globalThis.document = { querySelectorAll: (asked) => known[asked] };
new Function(script)();

const shown = () => rows.filter((one) => !one.hidden).map((one) => one.dataset.verdict);
const found = [[form.hidden, shown(), output.textContent]];
for (const [verdict, figure] of [["", "fig2"], ["holds", "fig2"], ["holds", "b1"]]) {
  form.elements.verdict.value = verdict;
  form.elements.figure.value = figure;
  changed();
  found.push([tables.map((table) => table.hidden), shown(), output.textContent]);
}
console.log(JSON.stringify(found));
