// Small things that all forms share. Texts get into the page as text, never as markup.

import { ServerError, post } from "./server.js";

export const find = (selector, within = document) => within.querySelector(selector);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const percent = (share) => `${share > 0.995 && share < 1 ? ">99" : share > 0 && share < 0.005 ? "<1" : Math.round(100 * share)} %`;

// A signed number with a real minus, as a person would write it.
export const signed = (value, digits = 1) => {
  const shown = Math.abs(value).toFixed(digits);
  return Number(shown) === 0 ? shown : `${value < 0 ? "−" : "+"}${shown}`;
};

export const plain = (value, digits = 1) => signed(value, digits).replace("+", "");

// The server counts characters as Python does, JavaScript counts some of them twice.
export const lettersOf = (text) => Array.from(text);

// A text of its own direction inside a sentence of another (dir="auto" for a part of a string).
export const isolated = (text) => `\u2068${text}\u2069`;

export const shorten = (text) => (lettersOf(text).length > 40 ? `${lettersOf(text).slice(0, 38).join("")}…` : text);

// A text with some of its characters marked; marks are {start, end, label} in order.
export function marked(letters, marks) {
  const nodes = [];
  let at = 0;
  for (const { start, end, label } of marks) {
    nodes.push(letters.slice(at, start).join(""));
    const mark = make("mark", {}, letters.slice(start, end).join(""));
    if (label) mark.append(make("small", {}, label));
    nodes.push(mark);
    at = end;
  }
  return [...nodes, letters.slice(at).join("")];
}

// Bars that say the same in words.
export function shareBar(share) {
  return make("span", { class: "share", "--share": share, "aria-hidden": "true" });
}

// A form that sends one request at a time, can be stopped, and loses nothing that was typed. Where a request fails, what
// the one before it has shown is cleared: it is no answer to what stands in the form now.
export class Sender {
  constructor(form, { onNeedsToken, clear }) {
    this.form = form;
    this.onNeedsToken = onNeedsToken;
    this.clear = clear;
    this.running = null;
    find(".stop", form).addEventListener("click", () => this.running?.abort());
  }

  async send(path, body, show) {
    this.running?.abort();
    const own = (this.running = new AbortController());
    this.say(null);
    this.setBusy(true);
    try {
      const answer = await post(path, body, own.signal);
      if (this.running === own) show(answer);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (this.running === own) this.fail(error);
    } finally {
      if (this.running === own) this.setBusy(false);
    }
  }

  fail(error) {
    this.clear();
    const name = error.message.split(":")[0];
    const field = this.form.elements.namedItem(name);
    this.say(field ? error.message.replace(name, field.labels[0].firstChild.textContent.trim()) : error.message);
    if (error.status === 401) this.onNeedsToken();
    if (field) {
      field.setAttribute("aria-invalid", "true");
      field.focus();
    }
  }

  say(message) {
    const line = find(".error", this.form);
    line.textContent = message ?? "";
    line.hidden = message === null;
    for (const field of this.form.elements) field.removeAttribute("aria-invalid");
  }

  setBusy(is) {
    const stop = find(".stop", this.form);
    if (!is && document.activeElement === stop) find(".main", this.form).focus();
    stop.hidden = !is;
    find("progress", this.form).hidden = !is;
    this.form.setAttribute("aria-busy", String(is));
  }
}
