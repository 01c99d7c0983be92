// Joins the forms to the server.

import { EXAMPLES } from "./examples.js";
import { Sender, find, lettersOf, make, marked, percent, shareBar } from "./parts.js";
import { Result } from "./result.js";
import { ServerError, get, useToken } from "./server.js";

const ALL = 1000; // candidates: "no answer" may be the last of them
const ABOUT = {
  answer: "Ask a question about a passage, see how sure the model is, and look through the layers behind its answer.",
  classify: "Classify a text, and see how sure the model is.",
  tag: "Tag the words of a text, and see how sure the model is.",
};
const KINDS = { squad1: "answer", squad2: "answer", ner: "tag" }; // what is asked of models of other tasks: classify

function kindOf(task) {
  return KINDS[task] ?? "classify";
}

// Shows the forms that some loaded model can answer, and which models there are where there is a choice.
async function readModels() {
  let tasks;
  try {
    tasks = await get("models");
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (error.status === 401) askForToken();
    else answering.say(error.message);
    return;
  }
  const names = { answer: [], classify: [], tag: [] };
  for (const [name, task] of Object.entries(tasks)) names[kindOf(task)].push(name);
  for (const [kind, own] of Object.entries(names)) listModels(kind, own);
  const loaded = Object.keys(names).filter((kind) => names[kind].length);
  find("#tasks").hidden = loaded.length < 2;
  for (const button of find("#tasks").children) button.hidden = !loaded.includes(button.dataset.task);
  if (loaded.length) open(loaded[0]);
}

function listModels(kind, names) {
  const select = find(`#${kind}-model`);
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  select.parentElement.hidden = names.length < 2;
}

function open(task) {
  find("#about").textContent = ABOUT[task];
  for (const button of find("#tasks").children) {
    button.setAttribute("aria-pressed", String(button.dataset.task === task));
    find(`#${button.dataset.task}`).hidden = button.dataset.task !== task;
  }
}

function askForToken() {
  find("#token-form").hidden = false;
  find("#token").focus();
}

function chosen(kind) {
  const name = find(`#${kind}-model`).value;
  return name ? { model: name } : {};
}

const onNeedsToken = askForToken;
const result = new Result({ onNeedsToken });
const answering = new Sender(find("#answer-form"), { onNeedsToken, clear: () => result.clear() });
const classifying = new Sender(find("#classify-form"), { onNeedsToken, clear: () => find("#classes").replaceChildren() });
const tagging = new Sender(find("#tag-form"), { onNeedsToken, clear: () => find("#tags").replaceChildren() });

function ask(event) {
  event.preventDefault();
  const asked = { question: find("#question").value, context: find("#context").value, ...chosen("answer") };
  answering.send("answer", { ...asked, top_k: ALL }, (answered) => result.show(asked, answered));
}

function classify(event) {
  event.preventDefault();
  const other = find("#classify-other").value;
  const lines = other.split("\n").filter((line) => line.trim());
  const body = { text: find("#classify-text").value, ...chosen("classify") };
  if (lines.length) body.other = lines.length > 1 ? [lines] : other;
  if (lines.length > 1) body.text = [body.text];
  classifying.send("classify", body, ({ results: [found] }) => {
    const label = Array.isArray(found.label) ? found.label.join(", ") || "none of them" : String(found.label);
    const rows = Object.entries(found.probabilities).map(([name, share]) =>
      make("li", {}, make("span", { dir: "auto" }, name), shareBar(share), make("span", {}, percent(share))),
    );
    find("#classes").replaceChildren(make("p", { class: "given", dir: "auto" }, label), make("ul", { class: "shares" }, ...rows));
  });
}

function tag(event) {
  event.preventDefault();
  const text = find("#tag-text").value;
  tagging.send("tag", { text, ...chosen("tag") }, ({ results: [found] }) => {
    const marks = found.entities.map(({ start, end, type, probability }) => ({ start, end, label: ` ${type} ${percent(probability)}` }));
    const nothing = marks.length ? [] : [make("p", { class: "hint" }, "Nothing was found in this text.")];
    find("#tags").replaceChildren(...nothing, make("p", { class: "passage", dir: "auto" }, ...marked(lettersOf(text), marks)));
  });
}

function fill(example) {
  find("#context").value = example.context;
  find("#question").value = example.question;
}

find("#answer-form").addEventListener("submit", ask);
find("#classify-form").addEventListener("submit", classify);
find("#tag-form").addEventListener("submit", tag);
find("#token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(find("#token").value);
  find("#token").value = "";
  find("#token-form").hidden = true;
  answering.say(null);
  find("#question").focus();
  readModels();
});
for (const area of document.querySelectorAll("textarea")) {
  area.addEventListener("keydown", (event) => {
    const isSending = area.id === "question" ? !event.shiftKey && !event.isComposing : event.ctrlKey || event.metaKey;
    if (event.key !== "Enter" || !isSending) return;
    event.preventDefault();
    area.form.requestSubmit();
  });
}
for (const button of find("#tasks").children) button.addEventListener("click", () => open(button.dataset.task));
for (const example of EXAMPLES) {
  const button = make("button", { type: "button", class: "example" }, example.name);
  button.addEventListener("click", () => {
    fill(example);
    find("#answer-form").requestSubmit();
  });
  find("#examples").append(button);
}
if (!find("#context").value) fill(EXAMPLES[0]); // a browser may have kept what was typed before a reload
readModels();
