// Shows an answer: in its passage, against "no answer", among its candidates.

import { find, isolated, lettersOf, make, marked, percent, shareBar, shorten } from "./parts.js";
import { Heat } from "./xray.js";

const SHOWN = 6; // candidates

export class Result {
  constructor({ onNeedsToken }) {
    this.heat = new Heat({ onNeedsToken });
  }

  show(asked, { answers: [found], model }) {
    this.asked = { ...asked, model };
    this.letters = lettersOf(asked.context);
    const [given] = found;
    find("#waiting").hidden = true;
    find("#found").hidden = false;
    find("#answered-by").textContent = `model: ${model}`;
    find("#given").textContent = given.text || this.closest(found);
    find("#given").classList.toggle("nothing", !given.text);
    this.showDecision(found);
    this.showCandidates(found);
    this.choose(given);
    find("#result").scrollIntoView({ block: "nearest" }); // on a phone it stands below the form, out of sight
  }

  // What a model that abstains would have answered is of more use than nothing.
  closest(found) {
    const best = found.find((each) => each.text);
    if (!best) return "No answer in this passage";
    const line = this.letters.slice(0, best.start).filter((letter) => letter === "\n").length + 1;
    const place = this.letters.includes("\n") ? ` (line ${line.toLocaleString("en")})` : "";
    return `No sure answer; closest: ${isolated(best.text)}${place}`;
  }

  clear() {
    find("#waiting").hidden = false;
    find("#found").hidden = true;
    find("#given").textContent = "";
    find("#answered-by").textContent = "";
    find("#decision-text").textContent = "";
    this.heat.clear();
  }

  // One bar from 0 to 100 %: it is as long as the best answer is likely, and "no answer" is the mark that it must reach.
  showDecision(found) {
    const nothing = found.find((each) => !each.text);
    const best = found.find((each) => each.text);
    find("#decision").hidden = !nothing || !best;
    if (!nothing || !best) {
      const why = nothing ? "the passage has no other candidate" : "this model never says “no answer”";
      find("#decision-text").textContent = `Probability ${percent(found[0].probability)}; ${why}.`;
      return;
    }
    const bar = find("#decision");
    bar.style.setProperty("--share", best.probability);
    bar.style.setProperty("--needed", nothing.probability);
    bar.classList.toggle("abstained", !found[0].text);
    const word = found[0].text ? "" : ` for “${isolated(shorten(best.text))}”`;
    find(".needed span", bar).textContent = `“no answer”: ${percent(nothing.probability)}`;
    find("#decision-text").textContent =
      `${percent(best.probability)}${word} against ${percent(nothing.probability)} for “no answer”. ` +
      `The model gives the likelier of the two, so it ${found[0].text ? "answers" : "abstains"}.`;
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
    passage.scrollTop = mark ? mark.offsetTop - passage.clientHeight / 3 : 0;
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
