import{a}from"./chunk-2N6VAH4D.js";export{a as messages};
