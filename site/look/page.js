// What a page gains where scripts run: a field over long tables, and on the front page the stride explorer itself.

function addFilter(place) {
  const rows = [...document.querySelectorAll(".md-content table tbody tr")];
  const words = rows.map((row) => row.textContent.toLowerCase());
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `Filter ${rows.length} rows`;
  field.setAttribute("aria-label", "Filter the rows");
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !wanted.every((word) => words[i].includes(word));
      shown += !row.hidden;
    });
    said.textContent = wanted.length ? `${shown} of ${rows.length}` : "";
  });
  place.append(field, said);
}

// The picture stays until the instrument has drawn itself, and for good where it cannot: in a page opened from a folder.
function bringToLife(figure) {
  const frame = document.createElement("iframe");
  frame.title = "The stride explorer of the Lab";
  frame.className = "lab";
  frame.src = `lab/index.html?bare#${figure.dataset.lab}`;
  const dark = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
  frame.addEventListener("load", () => {
    const inside = frame.contentDocument, root = inside.documentElement;
    const paint = () => (root.dataset.theme = dark());
    paint();
    new MutationObserver(paint).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
    const fit = () => {
      if (!inside.querySelector(".cell")) return;
      figure.classList.add("live");
      frame.style.height = `${Math.ceil(inside.getElementById("main").getBoundingClientRect().height)}px`;
    };
    new ResizeObserver(fit).observe(inside.getElementById("main"));
    new MutationObserver(fit).observe(inside.getElementById("main"), { childList: true, subtree: true });
  });
  figure.append(frame);
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-filter]").forEach(addFilter);
  if (location.protocol.startsWith("http")) document.querySelectorAll("figure[data-lab]").forEach(bringToLife);
});
