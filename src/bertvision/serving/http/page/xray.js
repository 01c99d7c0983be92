// The heat map: what each layer adds to the start or end logit of every token.

import { find, isolated, make, plain, signed } from "./parts.js";
import { ServerError, post } from "./server.js";

const AROUND = 5; // tokens on either side of the answer, unless the whole window is asked for
const BIAS = "bias";

export class Heat {
  constructor({ onNeedsToken }) {
    this.onNeedsToken = onNeedsToken;
    this.running = null;
    this.found = null;
    for (const radio of document.querySelectorAll("input[name=bound]")) radio.addEventListener("change", () => this.draw());
    find("#whole").addEventListener("change", () => this.draw());
    const table = find("#heat");
    table.addEventListener("keydown", (event) => this.move(event));
    for (const kind of ["focusin", "pointerover", "click"]) table.addEventListener(kind, (event) => this.tell(event.target.closest("td")));
  }

  async load(asked, answer) {
    this.running?.abort();
    const own = (this.running = new AbortController());
    find("#xray").hidden = false;
    find("#xray").setAttribute("aria-busy", "true");
    try {
      const found = await post("xray", { ...asked, start: answer.start, end: answer.end }, own.signal);
      if (this.running === own) this.show(found, answer);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (this.running === own) this.fail(error);
    } finally {
      if (this.running === own) find("#xray").setAttribute("aria-busy", "false");
    }
  }

  show(found, answer) {
    this.found = found;
    this.answer = answer;
    find("#xray-shown").hidden = false;
    this.draw();
  }

  fail(error) {
    this.found = null;
    find("#xray-shown").hidden = true;
    find("#xray-says").textContent = `No X-ray: ${error.message}`;
    if (error.status === 401) this.onNeedsToken();
  }

  clear() {
    this.running?.abort();
    this.running = null;
    this.found = null;
    find("#xray").setAttribute("aria-busy", "false");
    find("#xray").hidden = true;
    find("#xray-shown").hidden = true;
    find("#xray-says").textContent = "";
  }

  get bound() {
    return find("input[name=bound]:checked").value;
  }

  // The chosen bound's numbers: [token][part], their sums, and the answer's own token.
  get numbers() {
    const { starts, ends, start_logits, end_logits, first, last } = this.found;
    return this.bound === "start" ? { rows: starts, logits: start_logits, at: first } : { rows: ends, logits: end_logits, at: last };
  }

  draw() {
    if (!this.found) return;
    const { rows } = this.numbers;
    const counted = this.found.parts.map((name, part) => (name === BIAS ? -1 : part)).filter((part) => part >= 0);
    this.largest = Math.max(...rows.flatMap((row) => counted.map((part) => Math.abs(row[part]))), 1e-9);
    find(".legend .low").textContent = `${signed(-this.largest)} against`;
    find(".legend .high").textContent = `${signed(this.largest)} for`;
    find("#whole").nextElementSibling.textContent = `Whole window (${rows.length} tokens)`;
    find("#xray-says").textContent = this.sentence(counted);
    const table = find("#heat");
    find("caption", table).textContent = `What each layer adds to every token's ${this.bound} logit`;
    table.replaceChildren(find("caption", table), this.header(), this.body());
    this.first()?.setAttribute("tabindex", "0");
    this.tell(null);
  }

  sentence(counted) {
    const { rows, logits, at } = this.numbers;
    const row = rows[at];
    const order = counted.toSorted((one, other) => row[other] - row[one]);
    const [top, bottom] = [order[0], order.at(-1)];
    const place = this.bound === "start" ? "start" : "end";
    const what = this.answer.text ? `‘${isolated(this.found.tokens[at].text)}’ as the ${place} of the answer` : `“no answer” (its ${place}, read from the first token)`;
    const total = plain(logits[at]);
    const most =
      row[top] > 0
        ? `${named(this.found.parts[top])} said most for ${what}: ${signed(row[top])} of ${total}.`
        : `No layer spoke for ${what}, which has ${total} in all.`;
    return row[bottom] < 0 ? `${most} ${named(this.found.parts[bottom])} said most against it: ${signed(row[bottom])}.` : most;
  }

  header() {
    const { parts } = this.found;
    const layers = parts.filter((name) => name.startsWith("layer "));
    const others = parts.filter((name) => !name.startsWith("layer "));
    const tall = (text, title) => make("th", { scope: "col", rowspan: "2", title }, text);
    const top = make("tr", {}, tall("Token", "as it stands in the text"), make("th", { scope: "colgroup", colspan: layers.length }, "layer"));
    top.append(...others.map((name) => tall(name, name)), tall("logit", "the sum of the row"));
    const numbers = layers.map((name) => make("th", { scope: "col", title: name, "aria-label": name }, name.slice("layer ".length)));
    return make("thead", {}, top, make("tr", {}, ...numbers));
  }

  body() {
    const { tokens, parts, first, last } = this.found;
    const isShown = (place) => find("#whole").checked || place === 0 || (place >= first - AROUND && place <= last + AROUND);
    const body = make("tbody");
    let hidden = 0;
    for (const place of tokens.keys()) {
      if (isShown(place)) {
        if (hidden) body.append(gap(hidden, parts.length + 2));
        hidden = 0;
        body.append(this.row(place));
      } else hidden += 1;
    }
    if (hidden) body.append(gap(hidden, parts.length + 2));
    return body;
  }

  row(place) {
    const { rows, logits, at } = this.numbers;
    const { tokens, first, last } = this.found;
    const token = tokens[place];
    const name = make("th", { scope: "row", class: `token ${token.side}` }, make("span", { class: "text", dir: "auto" }, token.text));
    if (token.side === "question") name.append(make("small", {}, "question"));
    if (place === 0) name.append(make("small", {}, "“no answer”"));
    if (place === at && place > 0) name.append(make("small", { class: "badge" }, this.bound));
    const cells = rows[place].map((value, part) => this.cell(value, place, part));
    const total = make("td", { class: "total", tabindex: "-1", "data-token": place }, plain(logits[place]));
    const isAnswer = place >= first && place <= last;
    return make("tr", { class: isAnswer ? "answer" : "", "data-token": place }, name, ...cells, total);
  }

  cell(value, place, part) {
    const share = this.found.parts[part] === BIAS ? 0 : Math.abs(value) / this.largest;
    const attributes = { class: value < 0 ? "against" : "for", tabindex: "-1", "data-token": place, "data-part": part, "data-value": value, "--weight": share };
    return make("td", { ...attributes, title: this.words(place, part) }, signed(value));
  }

  words(place, part) {
    const { rows, logits } = this.numbers;
    const token = `‘${isolated(this.found.tokens[place].text)}’`;
    if (part === undefined) return `${token}: ${this.bound} logit ${plain(logits[place], 3)}`;
    return `${token}, ${this.found.parts[part]}: ${signed(rows[place][part], 3)} of ${plain(logits[place], 3)}`;
  }

  tell(cell) {
    const detail = find("#detail");
    if (!cell?.dataset.token) detail.textContent = "Point at a cell, or move to one with the arrow keys, for its exact number.";
    else detail.textContent = this.words(Number(cell.dataset.token), cell.dataset.part === undefined ? undefined : Number(cell.dataset.part));
  }

  first() {
    return find("tr.answer td", find("#heat")) ?? find("td[data-token]", find("#heat"));
  }

  // Arrow keys, Home and End move from cell to cell; one cell at a time can be tabbed to.
  move(event) {
    const cell = event.target.closest("td[data-token]");
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -999], End: [0, 999] };
    if (!cell || !(event.key in steps)) return;
    event.preventDefault();
    const lines = [...find("#heat").querySelectorAll("tbody tr[data-token]")].map((line) => [...line.querySelectorAll("td")]);
    const row = lines.findIndex((line) => line.includes(cell));
    const [down, right] = steps[event.key];
    const line = lines[within(row + down, lines.length)];
    const next = line[within(lines[row].indexOf(cell) + right, line.length)];
    cell.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

const within = (place, count) => Math.min(Math.max(place, 0), count - 1);

const gap = (count, columns) => make("tr", { class: "gap" }, make("td", { colspan: columns }, `… ${count} more ${count === 1 ? "token" : "tokens"}`));

function named(part) {
  if (part === "skip") return "The last layer, seen directly (skip),";
  return part.replace("layer", "Layer");
}
