// A figure with buttons that save it as SVG or PNG, its colours written out.
import { h, say } from "./dom.js";

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "rx", "transform", "paint-order", "stroke-linejoin"];

function standalone(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value && value !== "none" && !(name === "transform" && !element.style.transform)) to[i].setAttribute(name, value.replace(/"/g, "'"));
      else if (value === "none" && (name === "fill" || name === "stroke")) to[i].setAttribute(name, "none");
    }
    to[i].removeAttribute("class");
    to[i].removeAttribute("style");
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const box = svg.viewBox.baseVal;
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ x: box.x - 16, y: box.y - 16, width: box.width + 32, height: box.height + 32, fill: getComputedStyle(document.body).getPropertyValue("--sheet") })) ground.setAttribute(key, value);
  copy.prepend(ground);
  copy.setAttribute("viewBox", `${box.x - 16} ${box.y - 16} ${box.width + 32} ${box.height + 32}`);
  copy.setAttribute("width", box.width + 32);
  copy.setAttribute("height", box.height + 32);
  return new XMLSerializer().serializeToString(copy);
}

function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
  say(`${name} saved`);
}

export function figure(name, content, caption) {
  const picture = () => content.querySelector?.("svg") || (content.tagName === "svg" ? content : null);
  const asSvg = () => download(new Blob([standalone(picture())], { type: "image/svg+xml" }), `${name}.svg`);
  const asPng = () => {
    const image = new Image();
    const url = URL.createObjectURL(new Blob([standalone(picture())], { type: "image/svg+xml" }));
    image.onload = () => {
      const canvas = h("canvas", { width: image.width * 2, height: image.height * 2 });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => download(blob, `${name}.png`));
      URL.revokeObjectURL(url);
    };
    image.src = url;
  };
  return h("figure", {}, content, caption && h("figcaption", {}, caption), h("div", { class: "save" },
    h("button", { class: "button small", type: "button", onclick: asSvg, "aria-label": `Save ${name} as SVG` }, "SVG"),
    h("button", { class: "button small", type: "button", onclick: asPng, "aria-label": `Save ${name} as PNG` }, "PNG")));
}
