// Every request that the server takes, drawn from its openapi.json: fields, a line for curl, and a form to try it.

import { find, make } from "./parts.js";
import { ServerError, get, getText, hasToken, postForText, useToken } from "./server.js";

async function readRequests() {
  const line = find(".error[role=alert]");
  line.hidden = true;
  try {
    show(await get("openapi.json"));
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    line.textContent = error.message;
    line.hidden = false;
    find("#token-form").hidden = error.status !== 401;
    find("#token").focus();
  }
}

function show({ info, paths, components }) {
  find("#about").textContent = info.description;
  const requests = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => new Request(path, method.toUpperCase(), described, components.schemas).draw()),
  );
  const shapes = Object.entries(components.schemas).map(([name, schema]) => shape(name, schema));
  find("#requests").replaceChildren(...requests, make("h2", { class: "part" }, "What they are made of"), ...shapes);
}

class Request {
  constructor(path, method, { description, requestBody, responses }, schemas) {
    Object.assign(this, { path, method, description });
    this.takes = requestBody?.content["application/json"].schema;
    [[this.type, { schema: this.gives }]] = Object.entries(responses[200].content);
    this.example = this.takes && schemas[nameOf(this.takes)].examples[0];
  }

  draw() {
    const title = make("h2", { id: `request${this.path}` }, `${this.method} ${this.path}`);
    const told = [make("p", {}, this.description)];
    if (this.takes) told.push(make("p", {}, "Takes ", kind(this.takes), "."));
    told.push(make("p", {}, "Gives ", this.type === "application/json" ? kind(this.gives) : make("code", {}, this.type), "."));
    return make("section", { class: "card", "aria-labelledby": title.id }, title, ...told, make("pre", { tabindex: "0" }, this.curl()), this.form());
  }

  curl() {
    const token = hasToken() ? ` -H "Authorization: Bearer $BERTVISION_TOKEN"` : "";
    const address = new URL(this.path.slice(1), document.baseURI).href;
    if (!this.takes) return `curl -s ${address}${token}`;
    const body = JSON.stringify(this.example).replaceAll("'", "'\\''");
    return `curl -s ${address} -H 'Content-Type: application/json'${token} \\\n  -d '${body}'`;
  }

  form() {
    const body = make("textarea", { rows: "5", dir: "auto", spellcheck: "false", "aria-label": `Body of ${this.path}` });
    body.value = this.takes ? JSON.stringify(this.example, null, 2) : "";
    body.hidden = !this.takes;
    const said = make("pre", { tabindex: "0", role: "status", hidden: "" });
    const form = make("form", {}, body, make("div", { class: "row" }, make("button", { class: "main" }, "Send")), said);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      said.textContent = "…";
      said.hidden = false;
      said.textContent = await this.send(body.value);
    });
    return form;
  }

  async send(body) {
    try {
      const text = await (this.takes ? postForText(this.path.slice(1), body) : getText(this.path.slice(1)));
      return this.type === "application/json" ? JSON.stringify(JSON.parse(text), null, 2) : text;
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      return error.status === null ? error.message : `${error.status}: ${error.message}`;
    }
  }
}

const nameOf = (schema) => schema.$ref.split("/").at(-1);

// A type in words; those with fields of their own are links to them.
function kind(schema) {
  if (schema.$ref) return make("a", { href: `#${nameOf(schema)}` }, nameOf(schema));
  if (schema.anyOf) return joined(schema.anyOf.map(kind), " or ");
  if (schema.prefixItems) return joined(["list of ", joined(schema.prefixItems.map(kind), " and ")], "");
  if (schema.type === "array") return joined(["list of ", kind(schema.items)], "");
  if (schema.type === "object") return joined(["object of ", schema.additionalProperties ? kind(schema.additionalProperties) : "anything"], "");
  return schema.type ?? "anything";
}

const joined = (parts, between) => make("span", {}, ...parts.flatMap((part, place) => (place ? [between, part] : [part])));

function shape(name, { description = "", properties = {}, required = [] }) {
  const rows = Object.entries(properties).map(([field, schema]) => {
    const without = required.includes(field) ? "required" : JSON.stringify(schema.default) ?? "";
    return make("tr", {}, make("th", { scope: "row" }, field), make("td", {}, kind(schema)), make("td", {}, without), make("td", {}, schema.description ?? ""));
  });
  const head = make("tr", {}, ...["field", "type", "default", "meaning"].map((each) => make("th", { scope: "col" }, each)));
  const table = make("table", { class: "fields" }, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("section", { class: "card", id: name }, make("h3", {}, name), make("p", {}, description), make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Fields of ${name}` }, table));
}

find("#token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(find("#token").value);
  find("#token").value = "";
  find("#token-form").hidden = true;
  readRequests();
});
readRequests();
