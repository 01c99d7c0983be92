// Shows an answer: in its passage, against "no answer", among its candidates.

import { find, isolated, lettersOf, make, marked, percent, shareBar, shorten } from "./parts.js";
import { Heat } from "./xray.js";

const SHOWN = 6; // candidates

const sigmoid = (value) => 1 / (1 + Math.exp(-value));

export class Result {
  constructor({ onNeedsToken }) {
    this.heat = new Heat({ onNeedsToken });
  }

  show(asked, { answers: [found], null_threshold: threshold, fitted_threshold: fitted, temperature, model }) {
    this.asked = { ...asked, model };
    this.letters = lettersOf(asked.context);
    const [given] = found;
    find("#waiting").hidden = true;
    find("#found").hidden = false;
    find("#given").textContent = given.text || "No answer in this passage";
    find("#given").classList.toggle("nothing", !given.text);
    this.showDecision(found, threshold, fitted, temperature);
    this.showCandidates(found);
    this.choose(given);
  }

  clear() {
    find("#waiting").hidden = false;
    find("#found").hidden = true;
    find("#given").textContent = "";
    find("#decision-text").textContent = "";
    this.heat.clear();
  }

  // The best answer and "no answer" share 100 %; the threshold is a place on the same bar: the middle, unless it was asked for.
  showDecision(found, threshold, fitted, temperature) {
    const nothing = found.find((each) => !each.text);
    const best = found.find((each) => each.text);
    find("#decision").hidden = !nothing || !best;
    if (!nothing || !best) {
      find("#decision-text").textContent = `Probability ${percent(found[0].probability)}; this model never says “no answer”.`;
      return;
    }
    const share = sigmoid((best.score - nothing.score + fitted) / temperature);
    const needed = threshold === null ? 0 : sigmoid((fitted - threshold) / temperature);
    const bar = find("#decision");
    bar.style.setProperty("--share", share);
    bar.style.setProperty("--needed", needed);
    bar.classList.toggle("declined", !found[0].text);
    const word = found[0].text ? "" : ` for “${isolated(shorten(best.text))}”`;
    find(".needed span", bar).textContent = `threshold: ${percent(needed)}`;
    find("#decision-text").textContent =
      `${percent(share)}${word} against ${percent(1 - share)} for “no answer”. ` +
      `The model answers from ${percent(needed)} on (its threshold), so it ${found[0].text ? "answers" : "declines"}.`;
  }

  showCandidates(found) {
    const ranked = found.toSorted((one, other) => other.probability - one.probability);
    const kept = ranked.filter((each, place) => place < SHOWN || !each.text || each === found[0]);
    const rows = kept.map((each) => this.candidate(each, each === found[0]));
    find("#candidates").replaceChildren(find("#candidates legend"), ...rows);
  }

  candidate(answer, isGiven) {
    const radio = make("input", { type: "radio", name: "candidate" });
    radio.checked = isGiven;
    radio.addEventListener("change", () => this.choose(answer));
    const text = make("span", { class: answer.text ? "text" : "text nothing", dir: "auto" }, answer.text || "no answer");
    if (isGiven) text.append(" ", make("small", {}, "given"));
    return make("label", { class: "candidate" }, radio, text, shareBar(answer.probability), make("span", { class: "number" }, percent(answer.probability)));
  }

  choose(answer) {
    this.showPassage(answer);
    this.showNotes(answer);
    this.heat.load(this.asked, answer);
  }

  showPassage(answer) {
    const passage = find("#passage");
    passage.replaceChildren(...marked(this.letters, answer.text ? [answer] : []));
    const mark = find("mark", passage);
    passage.scrollTop = mark ? mark.offsetTop - passage.offsetTop - passage.clientHeight / 3 : 0;
  }

  showNotes(answer) {
    const [first, last] = answer.window;
    const notes = [];
    if (last - first < lettersOf(this.asked.context.trim()).length - 1 && answer.text) {
      notes.push(`Long passages are read in parts; this answer was found in characters ${first.toLocaleString("en")} to ${last.toLocaleString("en")}.`);
    }
    if (answer.is_question_cut) notes.push("The question is longer than the model reads; its end was left out.");
    find("#notes").textContent = notes.join(" ");
    find("#notes").hidden = !notes.length;
  }
}
