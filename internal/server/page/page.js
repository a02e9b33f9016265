"use strict";
// Without this script a page shows the state when it was loaded. With it, the page and the log update themselves.
const state = document.getElementById("state"), news = document.getElementById("news");

// say sets a text only if it differs, because a screen reader reads every change aloud.
const say = (where, text) => { if (where.textContent !== text) where.textContent = text; };

// patch makes an element equal to another one and keeps the nodes that are the same, so that neither the focus nor the
// reading position is lost. Children with an id are matched by it.
function patch(was, now) {
	for (const {name, value} of now.attributes) if (was.getAttribute(name) !== value) was.setAttribute(name, value);
	for (const {name} of [...was.attributes]) if (name !== "open" && !now.hasAttribute(name)) was.removeAttribute(name);
	const wanted = new Set([...now.children].map((child) => child.id)), known = new Map();
	for (const child of [...was.children]) {
		if (child.id && wanted.has(child.id)) known.set(child.id, child);
		else if (child.id) child.remove();
	}
	let at = was.firstChild;
	for (const next of [...now.childNodes]) {
		const same = next.id ? known.get(next.id) : at && !at.id && at.nodeName === next.nodeName ? at : null;
		if (!same) { was.insertBefore(next, at); continue; }
		// A node that is moved loses the focus, so the nodes before it are removed first.
		while (next.id && at && at !== same && !known.has(at.id)) { const gone = at; at = at.nextSibling; gone.remove(); }
		if (same === at) at = at.nextSibling; else was.insertBefore(same, at);
		if (next.nodeType === Node.ELEMENT_NODE) patch(same, next);
		else if (same.data !== next.data) same.data = next.data;
	}
	while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

// announce tells a screen reader which pods were added or removed or changed between well and ill, at most every 5 s.
let seen, told = new Map(), silent;
function announce() {
	const now = new Map([...document.querySelectorAll("[data-pod]")].map((pod) =>
		[pod.id, {ill: pod.classList.contains("ill"), name: pod.dataset.pod, state: pod.dataset.state}]));
	if (seen) {
		for (const [id, {ill, name, state}] of now) if (seen.get(id)?.ill !== ill) told.set(id, name + ": " + state);
		for (const [id, {name}] of seen) if (!now.has(id)) told.set(id, name + " is gone");
	}
	seen = now;
	if (silent || !told.size) return;
	const all = [...told.values()];
	told.clear();
	say(news, all.slice(0, 3).join(". ") + (all.length > 3 ? `. And ${all.length - 3} more` : ""));
	silent = setTimeout(() => { silent = undefined; announce(); }, 5000);
}

// listen receives the updates of the page. A browser reconnects by itself when there is no response, but not after a
// response of another kind, as from a proxy in front of podrun, or from podrun when the token has changed.
let source;
function listen() {
	source?.close();
	changed.clear();
	source = new EventSource(document.body.dataset.live);
	source.onopen = () => say(state, "Shown as it is now.");
	source.onerror = () => {
		say(state, "podrun does not answer: shown as it was last.");
		if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
	};
	source.onmessage = (event) => {
		for (const [id, html] of Object.entries(JSON.parse(event.data))) {
			changed.delete(id); // a Map keeps the order of what is new, and what comes last counts
			changed.set(id, html);
		}
		if (!later) update();
	};
}

// update shows what has changed, a few milliseconds at a time: while 500 rows change, the page still scrolls and answers keys.
const changed = new Map();
let later;
function update() {
	later = undefined;
	const until = performance.now() + 20;
	for (const [id, html] of changed) {
		if (performance.now() > until) { later = setTimeout(update); return; }
		changed.delete(id);
		const was = document.getElementById(id);
		if (!was) continue;
		let now = was.cloneNode(false);
		if (id.startsWith("row:")) { // with the row's own element
			const parsed = document.createElement("template");
			parsed.innerHTML = html;
			now = parsed.content.firstElementChild;
		} else now.innerHTML = html;
		patch(was, now);
	}
	announce();
}
listen();

// The filter of the page of all pods: the address has it, and the updates too, as soon as it is changed.
const filter = document.getElementById("filter");
let asked;
function apply() {
	const query = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value)).toString();
	history.replaceState(null, "", location.pathname + (query && "?" + query));
	document.body.dataset.live = "live" + (query && "?" + query);
	seen = undefined; // what the filter hides is not gone
	listen();
}
filter?.addEventListener("input", () => { clearTimeout(asked); asked = setTimeout(apply, 200); });
filter?.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(asked); apply(); });
