"""One process that hosts the runs of many loops: what starts them, who works on them, who tells people."""
