// Adds a "Try" button to each route. Without it the page is the same list, with links.
"use strict";

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

const bytes = (n) => n < 1024 ? `${n} bytes` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KB` : `${(n / (1 << 20)).toFixed(1)} MB`;

// Reads an answer to its end, and says how far it is; keeps the text only of short ones.
async function read(response, status, begun) {
  const decoder = new TextDecoder();
  let length = 0, text = "", waiting = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (text.length < 20000) text += decoder.decode(value, { stream: true });
    if (performance.now() - waiting > 100) {
      waiting = performance.now();
      status.textContent = `${bytes(length)} so far …`;
    }
  }
  const time = performance.now() - begun;
  status.textContent = `${response.status} ${response.statusText} · ${response.headers.get("content-type")} · ${bytes(length)} in ${time.toFixed(1)} ms`;
  return length > 20000 ? `${text.slice(0, 600)}…` : text;
}

function table(rows) {
  const names = Object.keys(rows[0] ?? {});
  const cell = (kind, value) => make(kind, { textContent: value, className: typeof value === "number" ? "number" : "" });
  return make("table", {},
    make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { textContent: name.replaceAll("_", " "), className: typeof rows[0][name] === "number" ? "number" : "" })))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...names.map((name) => cell("td", row[name]))))));
}

function addButton(card) {
  const { method, path } = card.dataset;
  const input = method === "POST" ? make("textarea", { rows: 3, value: "Water under the bridge", ariaLabel: "Body to post" }) : null;
  const button = make("button", { textContent: "Try" });
  const status = make("p", { className: "status" });
  status.setAttribute("role", "status");
  const result = make("div", { className: "result", hidden: true });
  let next = path;

  button.addEventListener("click", async () => {
    button.disabled = true;
    card.classList.add("open");
    result.hidden = false;
    try {
      const begun = performance.now();
      const options = input ? { method, body: input.value, headers: { "content-type": "text/plain; charset=utf-8" } } : {};
      const response = await fetch(next, options);
      const text = await read(response, status, begun);
      if (path === "/rows") {
        const page = JSON.parse(text);
        next = page.next ?? path;
        button.textContent = page.next ? "Next page" : "First page";
        result.replaceChildren(status, table(page.rows));
      } else {
        result.replaceChildren(status, make("pre", { textContent: text }));
      }
    } catch (error) {
      status.textContent = `No answer: ${error.message}`;
      result.replaceChildren(status);
    } finally {
      button.disabled = false;
    }
  });
  card.append(...[input, button, result].filter(Boolean));
}

document.querySelectorAll(".route:not([data-path='/'])").forEach(addButton);
