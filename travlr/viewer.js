"use strict";
// Everything of datasets and runs reaches the page as text nodes and plain attribute values, never as markup.
const byId = (id) => document.getElementById(id);
const number = (n) => n.toLocaleString("en");
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const CARDS_ON_A_PAGE = 24, ROWS_IN_A_CARD = 5;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// The state of the page is the hash of its address, so that a view can be kept and sent.
const state = () => Object.fromEntries(new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : ""));

function address(changes) {
  const parameters = Object.entries({ ...state(), ...changes }).filter(([, value]) => value);
  return "#" + (parameters.length ? new URLSearchParams(parameters) : "all");
}

// The viewer --------------------------------------------------------------------------------------------------------

// Filters, cards and pagers in `box`, from the data of travlr.viewer.viewer_data.
function startViewer(box, data) {
  const form = make("form", { role: "search" });
  const on = (name) => (form.elements[name]?.checked ?? false);
  for (const [name, label] of Object.entries(data.filters)) {
    const values = data.choices[name].map((value) => make("option", { value }, value));
    form.append(make("label", {}, `${label} `, make("select", { name }, make("option", { value: "" }, "all"), ...values)));
  }
  form.append(make("label", {}, "Contains ", make("input", { type: "search", name: "text", autocomplete: "off", spellcheck: "false" })));
  const switches = { marks: ["Mark queried objects", (card) => card.rings.length], axes: ["Axis letters", (card) => card.grid],
    couples: ["Couples side by side", (card) => card.couple] };
  for (const [name, [label, has]] of Object.entries(switches)) {
    if (data.cards.some(has)) form.append(make("label", { class: "check" }, make("input", { type: "checkbox", name }), label));
  }
  form.append(make("button", { type: "reset" }, "Clear"));
  const status = make("p", { class: "muted", role: "status" }), cards = make("div", { class: "cards" });
  const pagers = [make("div", { class: "pager" }), make("div", { class: "pager" })];
  box.append(form, make("div", { class: "status" }, status, pagers[0]), cards, pagers[1]);

  const names = Object.keys(data.filters);
  const fits = (columns, now) => names.every((name) => !now[name] || !(name in columns) || columns[name] === now[name]);
  const contains = (card, text) => [card.title, card.id, ...card.rows.map(({ words }) => words)].join("\n").toLowerCase().includes(text.trim().toLowerCase());

  // The cards that fit, each with the rows that fit; those with most rows first.
  function fitting(now) {
    const cardsOfNow = data.cards.filter((card) => fits(card.columns, now) && contains(card, now.text ?? ""))
      .map((card) => ({ ...card, rows: card.rows.filter((row) => fits(row, now)), all: card.rows.length }));
    return cardsOfNow.filter(({ rows, all }) => rows.length || !all).sort((a, b) => b.rows.length - a.rows.length);
  }

  // Cards alone or, side by side, with the other cards of their couple; the true one first.
  function grouped(chosen, now) {
    if (now.couples !== "1") return chosen.map((card) => [card]);
    const couples = new Map();
    for (const card of data.cards) couples.set(card.couple ?? card.id, [...(couples.get(card.couple ?? card.id) ?? []), card]);
    const wanted = new Set(chosen.map((card) => card.couple ?? card.id));
    return [...couples].filter(([name]) => wanted.has(name)).map(([, couple]) => couple.sort((a, b) => b.answer - a.answer));
  }

  function render() {
    const now = state();
    for (const field of form.elements) {
      if (field.type === "checkbox") field.checked = (now[field.name] ?? (field.name === "marks" ? "1" : "0")) === "1";
      else if (field.name && field.value !== (now[field.name] ?? "")) {
        if (field.options && now[field.name] && ![...field.options].some(({ value }) => value === now[field.name])) field.append(make("option", {}, now[field.name]));
        field.value = now[field.name] ?? "";
      }
    }
    const chosen = fitting(now), groups = grouped(chosen, now), rows = chosen.reduce((sum, card) => sum + card.rows.length, 0);
    const pages = Math.max(1, Math.ceil(groups.length / CARDS_ON_A_PAGE));
    const page = Math.min(pages, Math.max(1, Number.parseInt(now.page, 10) || 1)), first = (page - 1) * CARDS_ON_A_PAGE;
    const part = groups.slice(first, first + CARDS_ON_A_PAGE);
    status.textContent = (rows ? `${plural(rows, "answer")} on ` : "") + plural(groups.length, now.couples === "1" ? "couple" : "example")
      + (part.length < groups.length ? `, here ${number(first + 1)}–${number(first + part.length)}` : "") + (data.note ? ` (${data.note})` : "");
    cards.classList.toggle("couples", now.couples === "1");
    const drawn = part.map((group) => group.map((one) => drawCard(one, on("marks"), on("axes"))));
    cards.replaceChildren(...drawn.map((group) => (group.length > 1 ? make("div", { class: "couple" }, ...group) : group[0])));
    if (!part.length) cards.append(make("p", { class: "none" }, "Nothing on this page fits these filters. Clear some to see more."));
    for (const pager of pagers) showPager(pager, page, pages);
  }

  function showPager(pager, page, pages) {
    const turn = (to) => () => { location.hash = address({ page: String(to) }); box.scrollIntoView(); };
    const [previous, next] = ["Previous", "Next"].map((text) => make("button", { type: "button" }, text));
    [previous.disabled, next.disabled, previous.onclick, next.onclick] = [page === 1, page === pages, turn(page - 1), turn(page + 1)];
    pager.replaceChildren(previous, make("span", {}, `page ${page} of ${pages}`), next);
    pager.hidden = pages === 1;
  }

  form.addEventListener("change", ({ target }) => {
    if (target.name !== "text") location.hash = address({ [target.name]: target.type === "checkbox" ? String(Number(target.checked)) : target.value, page: "" });
  });
  form.addEventListener("input", ({ target }) => { // no entry in the history for each letter
    if (target.name === "text") location.replace(address({ text: target.value, page: "" }));
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    location.hash = address(Object.fromEntries([...names, "text", "page"].map((name) => [name, ""])));
  });
  addEventListener("hashchange", () => { if (!location.hash || location.hash.includes("=") || location.hash === "#all") render(); });
  render();
}

// A card ------------------------------------------------------------------------------------------------------------

function drawCard(card, marks, axes) {
  const text = make("div", { class: "words" }, make("p", { class: "query" }, card.title + " ", ...verdict(card.answer)));
  if (card.rows.length) text.append(rowList(card.rows));
  if (card.text) text.append(card.plain ? make("pre", { class: "caption code" }, card.text) : markedText(card));
  const chips = Object.entries(card.columns).filter(([name]) => name !== "answer").map(([name, value]) => make("a", { href: address({ [name]: value, page: "" }), title: "only these" }, value));
  text.append(make("p", { class: "meta" }, ...chips, make("span", { class: "code" }, card.id)));
  if (card.table.length) text.append(foldedTable(card.table));
  const picture = card.picture ? [axes && card.grid ? withAxes(card, framed(card, marks)) : framed(card, marks)] : [];
  return make("article", { class: "card", "data-id": card.id, "data-rows": card.rows.length }, ...picture, text);
}

const verdict = (truth) => (truth === null ? [] : [make("span", { class: `answer ${truth}` }, truth ? "✓ True" : "✗ False")]);

function rowList(rows) {
  const lines = rows.map(({ words }) => make("li", {}, words)), rest = lines.splice(ROWS_IN_A_CARD);
  const list = make("div", { class: "rows-of-card" }, make("ul", {}, ...lines));
  if (rest.length) list.append(make("details", {}, make("summary", {}, `${number(rest.length)} more`), make("ul", {}, ...rest)));
  return list;
}

// The picture with a ring around each queried object.
function framed(card, marks) {
  const picture = make("img", { src: card.picture, alt: card.text ? "The scene that the caption below describes" : "The picture that is asked about" });
  [picture.width, picture.height] = card.pixels;
  const box = make("div", { class: "picture" }, picture);
  for (const place of marks ? card.rings : []) {
    const ring = make("span", { class: "ring" });
    ["left", "top", "width", "height"].forEach((side, n) => { ring.style[side] = `${100 * place[n]}%`; });
    box.append(ring);
  }
  return box;
}

// A picture with the letters of its columns and the numbers of its rows, as captions name them.
function withAxes(card, box) {
  const [columns, rows] = card.grid, names = (many, name) => Array.from({ length: many }, (_, i) => make("span", {}, name(i)));
  const along = make("div", { class: "columns" }, ...names(columns, (i) => String.fromCharCode(65 + i)));
  const down = make("div", { class: "rows" }, ...names(rows, (i) => String(i + 1)));
  for (const [axis, many] of [[along, columns], [down, rows]]) axis.style.fontSize = `${Math.min(0.78, 12 / many)}rem`;
  return make("div", { class: "axes", "aria-hidden": "true" }, along, down, box);
}

// The text with the parts in `marks` marked.
function markedText({ text, marks }) {
  const paragraph = make("p", { class: "caption" });
  const places = marks.map((mark) => [text.search(new RegExp(mark.replace(/\W/g, "\\$&") + "(?!\\d)")), mark.length]);
  let end = 0;
  for (const [at, length] of places.filter(([at]) => at >= 0).sort((a, b) => a[0] - b[0])) {
    if (at < end) continue;
    paragraph.append(text.slice(end, at), make("mark", {}, text.slice(at, at + length)));
    end = at + length;
  }
  paragraph.append(text.slice(end));
  return paragraph;
}

function foldedTable([head, ...rows]) {
  const line = (values, cell) => make("tr", {}, ...values.map((value) => make(cell, {}, value)));
  const table = make("table", { class: "objects" }, make("thead", {}, line(head, "th")), make("tbody", {}, ...rows.map((row) => line(row, "td"))));
  return make("details", {}, make("summary", {}, plural(rows.length, "object")), make("div", { class: "scroll" }, table));
}

for (const box of document.querySelectorAll(".viewer")) startViewer(box, JSON.parse(byId(`${box.id}-data`).textContent));
