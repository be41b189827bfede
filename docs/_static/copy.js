// A button on every block of code. Of an example it copies what is typed, without prompts and output.
"use strict";

function typed(text) {
  const lines = text.split("\n");
  if (!lines.some((line) => line.startsWith(">>>"))) return text;
  return lines
    .filter((line) => /^(>>>|\.\.\.)( |$)/.test(line))
    .map((line) => line.slice(4))
    .join("\n");
}

function buttonFor(block) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(typed(block.querySelector("pre").textContent.trimEnd()));
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) block.append(buttonFor(block));
});
