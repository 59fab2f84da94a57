import{a}from"./chunk-7UH2PGVJ.js";export{a as messages};
