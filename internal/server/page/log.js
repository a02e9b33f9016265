// The log of a container, as it is written. log, its fields and follow exist on the page of a pod only.
const log = document.getElementById("log"), tools = document.getElementById("tools");

// How much of the log is kept, and how much of it may wait to be shown: a container may write faster than a browser shows.
const longest = 5e5, backlog = 1e5;

// Sequences of terminals: those of colours and others, control characters, and changes of the text direction.
const sequence = /\x1b\[([0-9;]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// paint turns text into nodes: the colours of terminals are classes, all other sequences are left out.
let colour = "", bold = false;
function paint(text) {
	const nodes = [];
	const add = (part) => {
		if (!part) return;
		if (!colour && !bold) { nodes.push(document.createTextNode(part)); return; }
		const span = document.createElement("span");
		span.className = (colour && "colour-" + colour) + (bold ? " bold" : "");
		span.textContent = part;
		nodes.push(span);
	};
	let at = 0;
	for (const found of text.matchAll(sequence)) {
		add(text.slice(at, found.index));
		at = found.index + found[0].length;
		if (found[1] === undefined) continue;
		const codes = found[1].split(";").map(Number);
		for (let i = 0; i < codes.length; i++) {
			const code = codes[i];
			if (code === 0) { colour = ""; bold = false; }
			else if (code === 1) bold = true;
			else if (code === 22) bold = false;
			else if (code === 39) colour = "";
			else if (code >= 30 && code <= 37 || code >= 90 && code <= 97) colour = code % 10;
			else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : 4; // of more colours than eight
		}
	}
	add(text.slice(at));
	return nodes;
}

// append adds to the log, some times a second. It keeps the end visible if it was, and removes the oldest text.
let waiting = "", omitted = 0, size = 0, drawing;
function append(text) {
	waiting += text;
	if (waiting.length > backlog) {
		const cut = waiting.indexOf("\n", waiting.length - backlog) + 1;
		omitted += cut;
		waiting = waiting.slice(cut);
	}
	drawing ??= setTimeout(draw, 100);
}
function draw() {
	drawing = undefined;
	const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 16;
	const part = document.createElement("span"); // so that the oldest text goes in one piece
	if (omitted) part.append(`— ${omitted} characters were written too fast to be shown —\n`);
	part.append(...paint(waiting));
	size += part.textContent.length; // which sequences are no part of
	waiting = "";
	omitted = 0;
	log.append(part);
	while (size > longest && log.childNodes.length > 1) {
		size -= log.firstChild.textContent.length;
		log.firstChild.remove();
	}
	if (atEnd) log.scrollTop = log.scrollHeight;
	mark();
}
function clear() {
	clearTimeout(drawing);
	drawing = undefined;
	log.textContent = waiting = colour = "";
	size = omitted = 0;
	bold = false;
}

// mark marks what is searched for, the newest 500 times. Enter shows the one before, from the end on.
let marks = [], shown = 0;
function mark() {
	const words = tools.elements.find.value.toLowerCase();
	marks = [];
	const all = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
	for (let node = words && all.lastChild() && all.currentNode; node && marks.length < 500; node = all.previousNode()) {
		const text = node.data.toLowerCase();
		for (let at = text.lastIndexOf(words); at >= 0 && marks.length < 500; at = at && text.lastIndexOf(words, at - 1)) {
			const range = new Range();
			range.setStart(node, at);
			range.setEnd(node, at + words.length);
			marks.push(range);
			if (!at) break;
		}
	}
	CSS.highlights?.set("mark", new Highlight(...marks));
	say(document.getElementById("marks"), words && (marks.length < 500 ? marks.length : "500 or more") + " times");
}

// follow shows the log of the newest instance of the container as it is written, and then that of the next one.
let run = "", following = false, reading;
async function follow() {
	const now = document.querySelector("[data-run]")?.dataset.run;
	if (!log?.dataset.follow || following || !now || now === run) return;
	following = true;
	reading = new AbortController();
	let pause = 1000;
	try {
		const from = new URL(log.dataset.follow, location.href); // without the password that the page's URL may contain
		if (tools.elements.times.checked) from.searchParams.set("timestamps", "true");
		const answer = await fetch(from, {signal: reading.signal});
		if (!answer.ok) throw new Error(answer.statusText);
		if (run) append("— started again —\n"); else clear();
		run = now;
		let rest = "";
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let part; !(part = await reader.read()).done;) {
			const end = part.value.lastIndexOf("\n") + 1;
			if (end) append(rest + part.value.slice(0, end));
			rest = (end ? "" : rest) + part.value.slice(end);
		}
		if (rest) append(rest + "\n");
	} catch {
		pause = reading.signal.aborted ? 0 : 5000;
		run = ""; // load all of it again when podrun responds
	}
	following = false;
	setTimeout(follow, pause);
}

if (log) {
	log.scrollTop = log.scrollHeight;
	tools.hidden = false;
	tools.elements.times.disabled = !log.dataset.follow;
	tools.elements.times.addEventListener("change", () => { reading?.abort(); if (!following) { run = ""; follow(); } });
	tools.elements.find.addEventListener("input", () => { shown = 0; mark(); });
	tools.addEventListener("submit", (event) => {
		event.preventDefault();
		const range = marks[shown++ % marks.length];
		if (range) log.scrollTop += range.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 2;
	});
	addEventListener("keydown", (event) => {
		if (event.key === "Escape" && event.target.tagName !== "INPUT") document.getElementById("up").click();
	});
	follow();
}
